import { InvalidOptionError } from "../errors.ts";
import type { AnswerToStore } from "./answer.ts";
import type { CallerCommand } from "./diagnostics.ts";
import { encodeRecord } from "./record.ts";

/** What is to take the place of the lock. */
export interface CompletePlan {
  readonly record: string;
  /** By the store's clock, in whole milliseconds. */
  readonly expiresAtMs: number;
  readonly cooldownUntilMs: number;
  /** The answer's body was left out, because too much waits in memory. */
  readonly bodyDropped: boolean;
  /** For how long the lock had been held. */
  readonly heldMs: number;
}

/** How many characters of records of one lock may wait for an answer of the store. */
const maxPendingLength = 8 * 1024 * 1024;

/**
 * Rule 15: stamped here, once, and equal in every copy.
 *
 * @param pendingLength how many characters of records wait already. Beyond 8 Mi characters the body
 * is left out: that it was done matters more than what was answered.
 * @throws InvalidOptionError without a submission.
 */
export function planComplete(
  { submission, ownerId, retainMs }: CallerCommand,
  answer: AnswerToStore,
  storeTimeMs: number,
  cooldownMs: number,
  pendingLength: number,
  heldMs: number,
): CompletePlan {
  if (submission === undefined) {
    throw new InvalidOptionError(
      "complete: expected a lease of acquire(userId, { submission }), got one without a submission",
    );
  }
  const encode = (kept: AnswerToStore) =>
    encodeRecord(submission.fingerprint, ownerId, kept, storeTimeMs);
  const whole = encode(answer);
  const bodyDropped = answer.body !== undefined && pendingLength + whole.length > maxPendingLength;
  return {
    record: bodyDropped ? encode({ ...answer, body: undefined }) : whole,
    expiresAtMs: storeTimeMs + retainMs,
    cooldownUntilMs: cooldownMs === 0 ? 0 : storeTimeMs + cooldownMs,
    bodyDropped,
    heldMs,
  };
}
