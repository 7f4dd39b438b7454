import { randomUUID } from "node:crypto";
import { type Lease, RedisStore, SubmitLock } from "../../../src/index.ts";
import type { AnyRedis } from "../../support/clients.ts";
import { recordKey } from "../../support/submissions.ts";

/** The life of every key in the lab. */
export const ttlMs = 5_000;

/** A lock as the lab knows it. */
export interface Library {
  readonly name: string;
  /** The key in Redis, before a `keyPrefix` of the client. */
  keyOf(user: string): string;
  open(client: AnyRedis): Contender;
  /** Where the answer of a submission is kept, for a library that keeps answers. */
  recordKeyOf?(user: string, keyPrefix: string): string;
  /** How rivals use it, where that differs: one try at a time, so that they try all the time. */
  openRival?(client: AnyRedis): Contender;
}

/** Somebody who wants the lock, on one connection. */
export interface Contender {
  /** One call as an application makes it, whatever the library does inside. */
  acquire(user: string): Promise<Answer>;
  /** Submits once more what the caller submits, whose answer a rival of a library that keeps answers knows. */
  retry?(user: string): Promise<Retry>;
  close(): Promise<void>;
}

/** `ran`: it got the lock of a submission that had been answered, or was being processed. */
type Retry = "ran" | "replayed" | "another answer" | "refused";

/** `error`: the library does not say whether somebody else holds the lock or Redis was of no use. */
export type Answer =
  | { readonly outcome: "acquired"; readonly hold: Hold }
  | {
      readonly outcome: "contended" | "unavailable" | "error";
      /** What the caller is told about it, if anything. */
      readonly cause?: string;
    };

/** What the caller got. */
export interface Hold {
  /** What the key holds. */
  readonly ownerId: string;
  /** Aborts when the library says that the lock is lost. */
  readonly signal?: AbortSignal;
  /** In the library's own word; may reject. */
  release(): Promise<string>;
}

/** A call that has not settled by then never will, as far as its caller is concerned. */
export const callBoundMs = 15_000;

/** What became of a promise within a time. */
export type Settled<Value> =
  | { readonly kind: "fulfilled"; readonly value: Value }
  | { readonly kind: "rejected"; readonly error: unknown }
  | { readonly kind: "pending" };

/** A promise that may never settle, and must not keep the lab waiting. Never rejects. */
export async function settled<Value>(
  promise: Promise<Value>,
  boundMs: number,
): Promise<Settled<Value>> {
  let timer: NodeJS.Timeout | undefined;
  const timeUp = new Promise<Settled<Value>>((resolve) => {
    timer = setTimeout(resolve, boundMs, { kind: "pending" });
  });
  const outcome = promise.then(
    (value): Settled<Value> => ({ kind: "fulfilled", value }),
    (error: unknown): Settled<Value> => ({ kind: "rejected", error }),
  );
  const first = await Promise.race([outcome, timeUp]);
  clearTimeout(timer);
  return first;
}

/** Compare and delete. */
export const deleteIfMine = `if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end return 0`;

function plain(
  name: string,
  release: (redis: AnyRedis, key: string, id: string) => unknown,
): Library {
  const keyOf = (user: string): string => `lock:${user}`;
  return {
    name,
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

/** This package, with its default time bounds: 1 s for an attempt, 200 ms for a command. */
export const submitLock: Library = {
  name: "submit-lock",
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
