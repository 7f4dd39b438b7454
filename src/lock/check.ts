import { LockUnavailableError } from "../errors.ts";
import { within } from "../within.ts";
import type { ReleaseOutcome } from "./diagnostics.ts";
import type { HeldLease } from "./held-lease.ts";
import { toLockError } from "./no-answer.ts";
import type { LockStore, OwnedReply } from "./store.ts";

/**
 * Extends and releases a throwaway lease, so that every command of the store is tried.
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
  const released = await new Promise<{ outcome: ReleaseOutcome; cause: Error | undefined }>(
    (resolve) => lease.release((outcome, cause) => resolve({ outcome, cause })),
  );
  if (extended?.kind !== "done") throw toLockError(extended, times.acquireTimeoutMs);
  if (released.outcome === "released") return;
  throw released.cause ?? new LockUnavailableError(`the throwaway lock was ${released.outcome}`);
}
