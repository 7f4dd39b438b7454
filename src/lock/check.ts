import { v4 as uuid } from "uuid";
import { type Acquisition, acquire } from "./acquisition.ts";
import { type AskedCommand, asker } from "./diagnostics.ts";
import { LockUnavailableError } from "./errors.ts";
import type { LeaseKeeper } from "./lease.ts";
import { reliableMs } from "./lease-life.ts";
import type { ReleaseOutcome } from "./retirement.ts";
import type { LockCommand, LockStore, OwnedReply } from "./store.ts";
import { errorFor } from "./trouble.ts";
import { within } from "./waiting.ts";

/**
 * Acquires, extends and releases one throwaway key, so that every command of the scripts is tried.
 *
 * @throws what is in the way, as a rejection.
 */
export async function check(keeper: LeaseKeeper, key: string): Promise<void> {
  const { store, times, alarms, retirements } = keeper;
  const command: AskedCommand = { key, ownerId: uuid(), times, asker: asker() };
  const { outcome, cause, startedAt, openCopies, mayHold } = await new Promise<Acquisition>(
    (ended) => acquire(store, command, alarms, ended),
  );
  if (outcome !== "acquired") {
    if (mayHold) retirements.begin(command, openCopies, 0);
    throw cause ?? new LockUnavailableError("the throwaway lock was contended");
  }
  // Longer than the life that the key has: otherwise nothing would have to be lengthened.
  const longer = { ...command, times: { ...times, ttlMs: times.ttlMs + 1 } };
  const extended = await within(times.acquireTimeoutMs, extendOnce(store, longer));
  const validUntil = startedAt + reliableMs(times.ttlMs);
  const released = await new Promise<{ outcome: ReleaseOutcome; cause: Error | undefined }>(
    (ended) =>
      retirements.begin(command, openCopies, validUntil, (outcome, cause) =>
        ended({ outcome, cause }),
      ),
  );
  if (extended?.kind !== "done") throw errorFor(extended, times.acquireTimeoutMs);
  if (released.outcome === "released") return;
  throw released.cause ?? new LockUnavailableError(`the throwaway lock was ${released.outcome}`);
}

function extendOnce(store: LockStore, command: LockCommand): Promise<OwnedReply> {
  return new Promise((answer) => store.extend({ command, deadlineMs: undefined, answer }));
}
