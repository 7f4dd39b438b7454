import type { AnyRedis } from "../../support/clients.ts";

/** The life of every key in the lab. */
export const ttlMs = 5_000;

/** A lock library as the lab knows it, so that submit-lock and its neighbours stand in one table. */
export interface Library {
  readonly name: string;
  /** Whether a lock can live longer than its TTL. */
  readonly extends: boolean;
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
  /** Loads the script of an extend that the library sends by itself, later than a warm-up can wait. */
  warm?(user: string): Promise<void>;
  close(): Promise<void>;
}

/** `ran`: it got the lock of a submission that had been answered, or was being processed. */
export type Retry = "ran" | "replayed" | "another answer" | "refused";

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
  /** For a library that leaves extending to its caller: every third of the TTL. */
  extend?(): Promise<unknown>;
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
