import { LockUnavailableError } from "../errors.ts";
import { within } from "../within.ts";
import type { HeldLease } from "./held-lease.ts";
import { toLockError } from "./no-answer.ts";
import type { LockStore, OwnedReply } from "./store.ts";

/** For `check`. */
export interface CheckOptions {
  /**
   * Whether a record is tried as well.
   * @defaultValue whether anything has asked this lock to keep answers
   */
  readonly submissions?: boolean | undefined;
}

/**
 * Extends a throwaway lease and ends it, with an answer if it has a submission, so that every
 * command of the store is tried.
 *
 * @throws what is in the way, as a rejection.
 */
export async function checkLease(lease: HeldLease, store: LockStore): Promise<void> {
  const { times } = lease.command;
  // Longer than the life that the key has: otherwise nothing would have to be extended.
  const command = { ...lease.command, times: { ...times, ttlMs: times.ttlMs + 1 } };
  const extended = await within(
    times.acquireTimeoutMs,
    new Promise<OwnedReply>((answer) => store.extend({ command, deadlineMs: undefined, answer })),
  );
  const { outcome, cause } = await ended(lease);
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
