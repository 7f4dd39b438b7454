import { randomUUID } from "node:crypto";
import { type Lease, RedisStore, SubmitLock } from "../../../src/index.ts";
import type { AnyRedis } from "../../support/clients.ts";
import { recordKey } from "../../support/submissions.ts";
import { type Library, type Retry, ttlMs } from "./library.ts";

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

/** This package, with its default time bounds: 1 s for an attempt, 200 ms for a command. */
export const submitLock: Library = {
  name: "submit-lock",
  extends: true,
  keyOf: (user) => `lock:submit:${user}`,
  open(client) {
    const lock = new SubmitLock({ store: new RedisStore(client), ttlMs });
    return {
      async acquire(user) {
        const attempt = await lock.acquire(user);
        if (attempt.outcome === "contended") return { outcome: "contended" };
        if (attempt.outcome === "unavailable") {
          return { outcome: "unavailable", cause: attempt.cause.message };
        }
        const { lease } = attempt;
        const { ownerId, signal } = lease;
        return { outcome: "acquired", hold: { ownerId, signal, release: () => lease.release() } };
      },
      close: () => lock.close({ timeoutMs: 0 }),
    };
  },
};

const id = "cart 7";
const body = "order 7";
const status = 201;

const keyOf = (user: string): string => `lock:submit:${user}`;

/** This package with the answer of a submission: the caller completes, rivals have other orders. */
export function submitOnce(retainMs: number): Library {
  const submission = { id, retainMs };
  return {
    name: "submit-lock, once",
    extends: true,
    keyOf,
    recordKeyOf: (user, keyPrefix) => keyPrefix + recordKey(keyPrefix + keyOf(user), id),
    open(client) {
      const lock = new SubmitLock({ store: new RedisStore(client), ttlMs });
      return {
        async acquire(user) {
          const attempt = await lock.acquire(user, { submission });
          if (attempt.outcome === "acquired") {
            const release = () => attempt.lease.complete({ status, body });
            return { outcome: "acquired", hold: holdOf(attempt.lease, release) };
          }
          if (attempt.outcome !== "unavailable") return { outcome: "contended" };
          return { outcome: "unavailable", cause: attempt.cause.message };
        },
        close: () => lock.close({ timeoutMs: 0 }),
      };
    },
    openRival(client) {
      const lock = new SubmitLock({ store: new RedisStore(client), ttlMs });
      return {
        async acquire(user) {
          const attempt = await lock.acquire(user);
          if (attempt.outcome !== "acquired") return { outcome: attempt.outcome };
          const release = () => attempt.lease.release();
          return { outcome: "acquired", hold: holdOf(attempt.lease, release) };
        },
        async retry(user): Promise<Retry> {
          const attempt = await lock.acquire(user, { submission });
          if (attempt.outcome === "acquired") {
            await attempt.lease.release();
            return "ran";
          }
          if (attempt.outcome !== "completed") return "refused";
          const { answer } = attempt;
          const isIt =
            answer.status === status && Buffer.from(answer.body ?? "").equals(Buffer.from(body));
          return isIt ? "replayed" : "another answer";
        },
        close: () => lock.close({ timeoutMs: 0 }),
      };
    },
  };
}

function holdOf({ ownerId, signal }: Lease, release: () => Promise<string>) {
  return { ownerId, signal, release };
}
