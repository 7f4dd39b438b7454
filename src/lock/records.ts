import { InvalidOptionError } from "../errors.ts";
import type { LockStore } from "./store.ts";

/**
 * Checks that the store can keep answers.
 *
 * @param feature what asks for it, for the message.
 * @throws InvalidOptionError where it cannot.
 */
export function checkRecords(store: LockStore, feature: string): void {
  if (store.complete === undefined) {
    throw new InvalidOptionError(
      `${feature}: expected a lock whose store keeps answers (RedisStore, MemoryStore, or a LockStore with complete), got a store without complete`,
    );
  }
  if (store.recordsProblem !== undefined) {
    throw new InvalidOptionError(`${feature}: ${store.recordsProblem}`);
  }
}
