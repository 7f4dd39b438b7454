import { randomUUID } from "node:crypto";
import { type Client, type Locker, notTaken, ttlMs } from "./locker.ts";

export const deleteIfMine =
  'if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end return 0';

/** A command that ioredis sends as EVALSHA: at least as fast as EVAL, so it is the measure. */
export type WithDeleteIfMine = { deleteIfMine(key: string, ownerId: string): Promise<unknown> };

export function withDeleteIfMine<C extends Client>(client: C): C & WithDeleteIfMine {
  client.defineCommand("deleteIfMine", { numberOfKeys: 1, lua: deleteIfMine });
  return client as C & WithDeleteIfMine;
}

interface Hold {
  readonly key: string;
  readonly ownerId: string;
}

/** What everything is measured against: what one writes without a library. */
export function openPlain(client: Client): Locker<Hold> {
  const redis = withDeleteIfMine(client);
  return {
    async acquire(user) {
      const key = `lock:submit:${user}`;
      const ownerId = randomUUID();
      const reply = await redis.set(key, ownerId, "PX", ttlMs, "NX");
      if (reply !== "OK") throw notTaken(user);
      return { key, ownerId };
    },
    release: ({ key, ownerId }) => redis.deleteIfMine(key, ownerId),
  };
}
