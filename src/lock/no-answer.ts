import { LockMisconfiguredError, LockUnavailableError } from "../errors.ts";
import type { NoAnswer, OwnedReply } from "./store.ts";

/** The error for a caller that needed an answer and got none. */
export function toLockError(
  lastFailure: NoAnswer | OwnedReply | undefined,
  withinMs: number,
): LockUnavailableError | LockMisconfiguredError {
  if (lastFailure === undefined) {
    return new LockUnavailableError(`the store did not answer within ${withinMs} ms`);
  }
  switch (lastFailure.kind) {
    case "unsent":
      return new LockUnavailableError(
        `nothing could be sent to the store within ${withinMs} ms: ${because(lastFailure)}`,
        lastFailure.cause && { cause: lastFailure.cause },
      );
    case "rejected":
      if (lastFailure.misconfigured) return misconfigured(lastFailure.cause, lastFailure.advice);
      return unanswered(lastFailure.cause);
    case "unknown":
      return unanswered(lastFailure.cause);
    default:
      return new LockUnavailableError(`the store found the key ${lastFailure.kind}`);
  }
}

function unanswered(cause: Error): LockUnavailableError {
  return new LockUnavailableError(`the store gave no usable answer: ${cause.message}`, { cause });
}

function because({ reason, cause }: { reason: string; cause?: Error | undefined }): string {
  return cause === undefined ? reason : `${reason} (${cause.message})`;
}

function misconfigured(
  cause: Error,
  advice = "the store does not permit what a lock needs",
): LockMisconfiguredError {
  return new LockMisconfiguredError(`${advice}: ${cause.message}`, { cause });
}
