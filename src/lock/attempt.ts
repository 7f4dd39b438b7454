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
      /** An answer of Redis had been lost or late, and the lock was confirmed with the same owner id. */
      readonly confirmed: boolean;
    }
  | {
      readonly outcome: "contended";
      /** How long the holder's lease has to live unless it is extended; `Infinity` for a key that is no lock. */
      readonly expiresInMs: number;
    }
  | {
      readonly outcome: "unavailable";
      readonly cause: LockUnavailableError | LockMisconfiguredError | LockClosedError;
    };

/** What every attempt on a closed lock comes to. */
export function closed(): Extract<Attempt, { outcome: "unavailable" }> {
  return { outcome: "unavailable", cause: new LockClosedError("this lock was closed") };
}

/** What `withLock` throws instead of giving the attempt. */
export function failure(key: string, attempt: Exclude<Attempt, { outcome: "acquired" }>): Error {
  if (attempt.outcome === "unavailable") return attempt.cause;
  return new LockContendedError(`somebody else holds ${key}`, attempt.expiresInMs);
}
