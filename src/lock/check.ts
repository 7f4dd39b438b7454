import { v4 as uuid } from "uuid";
import { LockUnavailableError } from "../errors.ts";
import { type Acquisition, acquire } from "./acquire.ts";
import { asker, type CallerCommand } from "./diagnostics.ts";
import type { LockRuntime } from "./lease.ts";
import type { ReleaseOutcome } from "./release.ts";
import type { LockCommand, LockStore, OwnedReply } from "./store.ts";
import { toLockError } from "./trouble.ts";
import { reliableMs } from "./validity.ts";
import { within } from "./waiting.ts";

/**
 * Acquires, extends and releases one throwaway key, so that every command of the scripts is tried.
 *
 * @throws what is in the way, as a rejection.
 */
export async function check(keeper: LockRuntime, key: string): Promise<void> {
  const { store, times, timers, retirements } = keeper;
  const command: CallerCommand = { key, ownerId: uuid(), times, asker: asker() };
  const { outcome, cause, startedAt, inFlight, mayHold } = await new Promise<Acquisition>((ended) =>
    acquire(store, command, timers, ended),
  );
  if (outcome !== "acquired") {
    if (mayHold) retirements.begin(command, inFlight, 0);
    throw cause ?? new LockUnavailableError("the throwaway lock was contended");
  }
  // Longer than the life that the key has: otherwise nothing would have to be lengthened.
  const longer = { ...command, times: { ...times, ttlMs: times.ttlMs + 1 } };
  const extended = await within(times.acquireTimeoutMs, extendOnce(store, longer));
  const validUntil = startedAt + reliableMs(times.ttlMs);
  const released = await new Promise<{ outcome: ReleaseOutcome; cause: Error | undefined }>(
    (ended) =>
      retirements.begin(command, inFlight, validUntil, (outcome, cause) =>
        ended({ outcome, cause }),
      ),
  );
  if (extended?.kind !== "done") throw toLockError(extended, times.acquireTimeoutMs);
  if (released.outcome === "released") return;
  throw released.cause ?? new LockUnavailableError(`the throwaway lock was ${released.outcome}`);
}

function extendOnce(store: LockStore, command: LockCommand): Promise<OwnedReply> {
  return new Promise((answer) => store.extend({ command, deadlineMs: undefined, answer }));
}
