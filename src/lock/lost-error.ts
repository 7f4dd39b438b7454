import { LockLostError, type LostReason } from "../errors.ts";

const explanations: Record<LostReason, string> = {
  expired: "it could not be extended in time",
  overtaken: "the key was gone or held by somebody else",
  freed: "a person has taken the lock away",
  "max-hold": "it was held for maxHoldMs",
  closed: "the lock was closed",
};

/** Why a lease's signal aborts. */
export function lostError(key: string, reason: LostReason): LockLostError {
  return new LockLostError(`the lease on ${key} was lost: ${explanations[reason]}`, reason);
}
