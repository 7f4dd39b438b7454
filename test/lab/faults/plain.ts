import { randomUUID } from "node:crypto";
import type { AnyRedis } from "../../support/clients.ts";
import { type Library, ttlMs } from "./library.ts";

/** Compare and delete. */
export const deleteIfMine = `if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end return 0`;

function plain(
  name: string,
  release: (redis: AnyRedis, key: string, id: string) => unknown,
): Library {
  const keyOf = (user: string): string => `lock:${user}`;
  return {
    name,
    extends: false,
    keyOf,
    open: (redis) => ({
      async acquire(user) {
        const ownerId = randomUUID();
        const key = keyOf(user);
        const reply = await redis.set(key, ownerId, "EX", ttlMs / 1_000, "NX");
        if (reply !== "OK") return { outcome: "contended" };
        const hold = {
          ownerId,
          release: async () =>
            Number(await release(redis, key, ownerId)) === 1 ? "released" : "gone",
        };
        return { outcome: "acquired", hold };
      },
      close: async () => {},
    }),
  };
}

/** What many applications have: `SET NX EX`, and `DEL` when done. */
export const setAndDel: Library = plain("SET NX EX + DEL", (redis, key) => redis.del(key));

/** The same with an owner id, which only its owner deletes. */
export const setAndCompare: Library = plain("SET NX EX + compare-and-delete", (redis, key, id) =>
  redis.eval(deleteIfMine, 1, key, id),
);
