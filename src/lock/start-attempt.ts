import { LockUnavailableError } from "../errors.ts";
import { acquire } from "./acquire.ts";
import type { Acquisition } from "./acquisition.ts";
import { closedAttempt, type SubmissionAttempt } from "./attempt.ts";
import { acquireChannel, type CallerCommand, publish } from "./diagnostics.ts";
import { HeldLease, type LeaseRuntime } from "./held-lease.ts";
import { UserLease } from "./lease.ts";
import { release } from "./release.ts";

/** @param ended called once, within `acquireTimeoutMs`. */
export function startAttempt(
  runtime: LeaseRuntime,
  command: CallerCommand,
  ended: (attempt: SubmissionAttempt) => void,
): void {
  runtime.active.add();
  acquire(runtime.store, command, runtime.timers, (acquisition) => {
    publishAcquire(command, acquisition);
    ended(attemptOf(runtime, command, acquisition));
  });
}

/** The same without messages and without a lease in a user's hands. */
export async function acquireQuietly(
  runtime: LeaseRuntime,
  command: CallerCommand,
): Promise<HeldLease> {
  runtime.active.add();
  const acquisition = await new Promise<Acquisition>((ended) =>
    acquire(runtime.store, command, runtime.timers, ended),
  );
  const lease = leaseOf(runtime, command, acquisition);
  if (lease !== undefined) return lease;
  // The lock was closed meanwhile.
  if (acquisition.outcome === "acquired") throw closedAttempt().cause;
  throw acquisition.cause ?? new LockUnavailableError(`the lock was ${acquisition.outcome}`);
}

function attemptOf(
  runtime: LeaseRuntime,
  command: CallerCommand,
  acquisition: Acquisition,
): SubmissionAttempt {
  const held = leaseOf(runtime, command, acquisition);
  const { outcome, confirmed, completed, expiresInMs, sameSubmission } = acquisition;
  if (held !== undefined) return { outcome: "acquired", lease: new UserLease(held), confirmed };
  if (completed !== undefined) return { outcome: "completed", ...completed };
  switch (outcome) {
    case "acquired":
      return closedAttempt();
    case "contended":
      return { outcome, expiresInMs, sameSubmission, isCooldown: acquisition.isCooldown };
    case "mismatched":
      return { outcome, inFlight: acquisition.otherInFlight };
    default: {
      const cause = acquisition.cause ?? new LockUnavailableError("no cause was given");
      return { outcome: "unavailable", cause };
    }
  }
}

/** Makes the lease, or retires the owner id where there is none to be. */
function leaseOf(
  runtime: LeaseRuntime,
  command: CallerCommand,
  acquisition: Acquisition,
): HeldLease | undefined {
  const { outcome, inFlight, mayHold } = acquisition;
  if (outcome === "acquired" && !runtime.isDrained) {
    // The lease takes the attempt's place among what is active, without a moment in between.
    return new HeldLease(runtime, command, acquisition);
  }
  // Rule 5.
  if (outcome === "acquired" || mayHold) release(runtime, command, inFlight, 0);
  runtime.active.done();
  return undefined;
}

function publishAcquire(command: CallerCommand, acquisition: Acquisition): void {
  if (!acquireChannel.hasSubscribers) return;
  const { key, keyPrefix } = command;
  const { outcome, startedAt, copies, confirmed, fencingToken, cause } = acquisition;
  const message = {
    key,
    keyPrefix,
    outcome,
    durationMs: performance.now() - startedAt,
    copies,
    confirmed,
    fencingToken,
    expiresInMs: outcome === "contended" ? acquisition.expiresInMs : undefined,
    cause,
  };
  publish(acquireChannel, command, message);
}
