import {
  LockClosedError,
  LockContendedError,
  type LockMisconfiguredError,
  type LockUnavailableError,
} from "../errors.ts";
import type { Lease } from "./lease.ts";

/** How an attempt to take a user's lock ended. */
export type Attempt =
  | {
      readonly outcome: "acquired";
      readonly lease: Lease;
      /** A reply had been lost or was late, and the lock was confirmed with the same owner id. */
      readonly confirmed: boolean;
    }
  | {
      readonly outcome: "contended";
      /** How long the holder's lease has to live unless it is extended, in milliseconds; `Infinity` for a key that is no lock. */
      readonly expiresInMs: number;
    }
  | {
      readonly outcome: "unavailable";
      readonly cause: LockUnavailableError | LockMisconfiguredError | LockClosedError;
    };

/** How every attempt on a closed lock ends. */
export function closedAttempt(): Extract<Attempt, { outcome: "unavailable" }> {
  return { outcome: "unavailable", cause: new LockClosedError("this lock was closed") };
}

/** What `withLock` throws for an attempt that did not acquire. */
export function attemptError(
  key: string,
  attempt: Exclude<Attempt, { outcome: "acquired" }>,
): Error {
  if (attempt.outcome === "unavailable") return attempt.cause;
  return new LockContendedError(`somebody else holds ${key}`, attempt.expiresInMs);
}
