import { LockUnavailableError } from "../errors.ts";
import { within } from "../within.ts";
import { acquire, type Settled } from "./acquire.ts";
import type { HeldLease } from "./held-lease.ts";
import { toLockError } from "./no-answer.ts";
import { type CallerCommand, type LockRuntime, write } from "./runtime.ts";
import type { OwnedReply } from "./store.ts";

/** For `check`. */
export interface CheckOptions {
  /**
   * Whether a record is tried as well.
   * @defaultValue whether anything has asked this lock to keep answers
   */
  readonly submissions?: boolean | undefined;
}

/**
 * Acquires a throwaway lock, extends it and ends it, with an answer if it has a submission, so that
 * every command of the store is tried. Without messages.
 *
 * @throws LockUnavailableError, LockMisconfiguredError or LockClosedError, as a rejection.
 */
export async function check(runtime: LockRuntime, command: CallerCommand): Promise<void> {
  const settled = await new Promise<Settled>((ended) => acquire(runtime, command, false, ended));
  if (settled.outcome === "unavailable") throw settled.cause;
  if (settled.outcome !== "acquired") {
    throw new LockUnavailableError(`the lock was ${settled.outcome}`);
  }
  const { times } = command;
  // Longer than the life that the key has: otherwise nothing would have to be extended.
  const longer = { ...command, times: { ...times, ttlMs: times.ttlMs + 1 } };
  const extended = await within(
    times.acquireTimeoutMs,
    new Promise<OwnedReply>((answer) =>
      write(runtime.store, "extend", { command: longer, deadlineMs: undefined, answer }),
    ),
  );
  const { outcome, cause } = await ended(settled.held);
  if (extended?.kind !== "done") throw toLockError(extended, times.acquireTimeoutMs);
  if (outcome === "released" || outcome === "recorded") return;
  throw cause ?? new LockUnavailableError(`the throwaway lock was ${outcome}`);
}

function ended(lease: HeldLease): Promise<{ outcome: string; cause: Error | undefined }> {
  return new Promise((resolve) => {
    const tell = (outcome: string, cause: Error | undefined) => resolve({ outcome, cause });
    if (lease.command.submission === undefined) lease.release(tell);
    else lease.complete({ status: 204 }, 0, tell);
  });
}
