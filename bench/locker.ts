import { randomUUID } from "node:crypto";
import type { Cluster, Redis } from "ioredis";

export type Client = Redis | Cluster;

/** The life of every lock of the bench. */
export const ttlMs = 10_000;

/**
 * A lock library as the bench calls it: one try, and a release by its owner only. The hold is
 * whatever the library hands out, so that the bench makes no closure of its own for each pair.
 */
export interface Locker<Hold> {
  acquire(user: string): Promise<Hold>;
  release(hold: Hold): Promise<unknown>;
}

/** What `acquire` throws when the lock was not taken: no two callers of the bench want the same. */
export function notTaken(user: string): Error {
  return new Error(`the lock of ${user} was not taken`);
}

export const deleteIfMine =
  'if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end return 0';

/** A command that ioredis sends as EVALSHA: at least as fast as EVAL, so it is the measure. */
type WithDeleteIfMine = { deleteIfMine(key: string, ownerId: string): Promise<unknown> };

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
