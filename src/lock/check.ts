import { v4 as uuid } from "uuid";
import { acquire } from "./acquisition.ts";
import { LockUnavailableError } from "./errors.ts";
import type { LeaseKeeper } from "./lease.ts";
import { reliableMs } from "./lease-life.ts";
import type { LockCommand } from "./store.ts";
import { errorFor } from "./trouble.ts";
import { within } from "./waiting.ts";

/**
 * Acquires, extends and releases one throwaway key, so that every command of the scripts is tried.
 *
 * @throws what is in the way, as a rejection.
 */
export async function check(
  { store, times, retirements }: LeaseKeeper,
  key: string,
): Promise<void> {
  const command: LockCommand = { key, ownerId: uuid(), times };
  const { outcome, cause, startedAt, openCopies, mayHold } = await acquire(store, command);
  if (outcome !== "acquired") {
    if (mayHold) void retirements.begin(command, openCopies, 0);
    throw cause ?? new LockUnavailableError("the throwaway lock was contended");
  }
  // Longer than the life that the key has: otherwise nothing would have to be lengthened.
  const longer = { ...command, times: { ...times, ttlMs: times.ttlMs + 1 } };
  const extended = await within(times.acquireTimeoutMs, store.extend(longer).reply);
  const validUntil = startedAt + reliableMs(times.ttlMs);
  const released = await retirements.begin(command, openCopies, validUntil);
  if (extended?.kind !== "done") throw errorFor(extended, times.acquireTimeoutMs);
  if (released.outcome === "released") return;
  throw released.cause ?? new LockUnavailableError(`the throwaway lock was ${released.outcome}`);
}
