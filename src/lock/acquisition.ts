import type { LockMisconfiguredError, LockUnavailableError } from "../errors.ts";
import type { StoredAnswer } from "./answer.ts";
import type { InFlight } from "./in-flight.ts";

/** How an attempt ended, with what the lock needs to clean up after it. */
export interface Acquisition {
  readonly outcome: "acquired" | "contended" | "completed" | "mismatched" | "unavailable";
  /** Acquired: a reply had been lost or was late, and the owner id was confirmed. */
  readonly confirmed: boolean;
  /** Acquired: the fencing token, where the store has one. */
  readonly fencingToken: number | undefined;
  /** Acquired: what to add to the monotonic clock for a time that the store's clock has passed. */
  readonly storeOffsetMs: number;
  /** Contended: how long the other's key has to live. */
  readonly expiresInMs: number;
  /** Contended: the holder is at work on the same submission. */
  readonly sameSubmission: boolean;
  /** Contended: by a cooldown. */
  readonly isCooldown: boolean;
  /** Completed: what is kept of the submission. */
  readonly completed: Completed | undefined;
  /** Mismatched: the other submission is still being processed. */
  readonly otherInFlight: boolean;
  /** Unavailable: why. */
  readonly cause: LockUnavailableError | LockMisconfiguredError | undefined;
  /** Monotonic time from before the first send: the lease counts from here. */
  readonly startedAt: number;
  /** How many requests were written. */
  readonly copies: number;
  /** The requests that may still take effect. */
  readonly inFlight: InFlight;
  /** Whether the owner id has to be retired: the key may hold it now, or later. */
  readonly mayHold: boolean;
}

/** An answer that was recorded before. */
export interface Completed {
  readonly answer: StoredAnswer;
  readonly ageMs: number;
}
