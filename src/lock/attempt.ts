import {
  LockClosedError,
  LockContendedError,
  type LockMisconfiguredError,
  type LockUnavailableError,
} from "../errors.ts";
import type { StoredAnswer } from "./answer.ts";
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
      /** The holder is at work on the very submission that was asked for. */
      readonly sameSubmission?: boolean | undefined;
      /** Nobody holds it: the cooldown of the user's last submission is not over. */
      readonly isCooldown?: boolean | undefined;
    }
  | {
      readonly outcome: "unavailable";
      readonly cause: LockUnavailableError | LockMisconfiguredError | LockClosedError;
    };

/** How an attempt to take a user's lock for a submission ended. */
export type SubmissionAttempt =
  | Attempt
  | {
      /** The submission was completed before: nothing was acquired. */
      readonly outcome: "completed";
      readonly answer: StoredAnswer;
      /** How long ago by the store's clock, in milliseconds. */
      readonly ageMs: number;
    }
  | {
      /** The id is that of another submission of the user, with another fingerprint. */
      readonly outcome: "mismatched";
      /** That one is still being processed; otherwise it was completed. */
      readonly inFlight: boolean;
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
  const why = attempt.isCooldown ? `${key} is in its cooldown` : `somebody else holds ${key}`;
  return new LockContendedError(why, attempt.expiresInMs);
}
