import { randomUUID } from "node:crypto";
import { type Lease, RedisStore, SubmitLock } from "../../../src/index.ts";
import type { AnyRedis } from "../../support/clients.ts";
import { saidBy } from "../../support/locks.ts";
import { recordKey } from "../../support/submissions.ts";

/** The life of every key in the lab. */
export const ttlMs = 5_000;

/** A lock as the lab knows it. */
export interface Library {
  /** The key in Redis, before a `keyPrefix` of the client. */
  keyOf(user: string): string;
  open(client: AnyRedis): Contender;
  /** Where the answer of a submission is kept, for a library that keeps answers. */
  recordKeyOf?(user: string, keyPrefix: string): string;
  /** How rivals use it, where that differs. */
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

export type Answer =
  | { readonly outcome: "acquired"; readonly hold: Hold }
  /** With the cause that the caller is told, if any. */
  | { readonly outcome: "contended" | "unavailable"; readonly cause?: string };

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

/** What many applications have: `SET NX EX`, and `DEL` when done. */
export const setAndDel: Library = {
  keyOf: (user) => `lock:${user}`,
  open: (redis) => ({
    async acquire(user) {
      const ownerId = randomUUID();
      const reply = await redis.set(`lock:${user}`, ownerId, "EX", ttlMs / 1_000, "NX");
      if (reply !== "OK") return { outcome: "contended" };
      const release = async () => ((await redis.del(`lock:${user}`)) === 1 ? "released" : "gone");
      return { outcome: "acquired", hold: { ownerId, release } };
    },
    close: async () => {},
  }),
};

const keyOf = (user: string): string => `lock:submit:${user}`;
const lockOn = (client: AnyRedis) => new SubmitLock({ store: new RedisStore(client), ttlMs });

function contender(
  lock: SubmitLock,
  end: (lease: Lease) => Promise<string>,
  submission?: { id: string; retainMs: number },
): Contender {
  return {
    async acquire(user) {
      const attempt = await (submission ? lock.acquire(user, { submission }) : lock.acquire(user));
      if (attempt.outcome === "unavailable") {
        return { outcome: "unavailable", cause: saidBy(attempt.cause) };
      }
      if (attempt.outcome !== "acquired") return { outcome: "contended" };
      const { lease } = attempt;
      const { ownerId, signal } = lease;
      return { outcome: "acquired", hold: { ownerId, signal, release: () => end(lease) } };
    },
    close: () => lock.close({ timeoutMs: 0 }),
  };
}

/** This package, with its default time bounds: 1 s for an attempt, 200 ms for a command. */
export const submitLock: Library = {
  keyOf,
  open: (client) => contender(lockOn(client), (lease) => lease.release()),
};

/** `retainMs` of the submission, where a fault does not say otherwise: longer than every cell. */
export const longRetainMs = 60_000;

const id = "cart 7";
const body = "order 7";
const status = 201;

/** This package with the answer of a submission: the caller completes, rivals have other orders. */
export function submitOnce(retainMs: number): Library {
  const submission = { id, retainMs };
  return {
    keyOf,
    recordKeyOf: (user, keyPrefix) => keyPrefix + recordKey(keyPrefix + keyOf(user), id),
    open: (client) =>
      contender(lockOn(client), (lease) => lease.complete({ status, body }), submission),
    openRival(client) {
      const lock = lockOn(client);
      return {
        ...contender(lock, (lease) => lease.release()),
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
      };
    },
  };
}
