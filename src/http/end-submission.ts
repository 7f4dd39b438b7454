import { UserLease } from "../lock/lease.ts";
import type { AnswerToStore } from "../lock/record.ts";
import { warnOnce } from "../validation.ts";
import type { Capture } from "./capture.ts";
import type { LeaseLike } from "./guard-options.ts";
import type { ResolvedIdempotency } from "./idempotency-options.ts";
import { isStored, type StorePolicy } from "./store-policy.ts";
import { IdentifiedSubmission } from "./submission.ts";

/** How a request's lease ends. */
export interface Ending {
  readonly submission: IdentifiedSubmission | undefined;
  readonly idempotency: ResolvedIdempotency<never> | undefined;
  readonly cooldownMs: number;
  /** What was answered, where anybody wants to know. */
  capture: Capture | undefined;
}

/** Keeps the answer, or gives the lock back. Rule 8: nobody waits for either. */
export function endSubmission(lease: LeaseLike, ending: Ending): void {
  const answer = ending.capture?.answer();
  if (answer === undefined) {
    giveBack(lease);
    return;
  }
  const { cooldownMs } = ending;
  const hasSucceeded = answer.status >= 200 && answer.status < 400;
  const cooldown = hasSucceeded && cooldownMs > 0 ? { cooldownMs } : undefined;
  if (lease.complete === undefined || !isKept(answer, ending)) giveBack(lease, cooldown);
  else if (isOurs(lease)) void lease.complete(answer, cooldown);
  else quietly(() => lease.complete?.(answer, cooldown));
}

/** Rule 8: nobody waits for it. */
export function giveBack(lease: LeaseLike, options?: { readonly cooldownMs: number }): void {
  if (isOurs(lease)) void lease.release(options);
  else quietly(() => lease.release(options));
}

/** This package's own never fail. */
function isOurs(lease: LeaseLike): lease is UserLease {
  return lease instanceof UserLease;
}

/** Another's must not end the process, nor the handler's `res.end()`. */
function quietly(end: () => Promise<unknown> | undefined): void {
  const failed = (error: unknown) =>
    warnOnce("SUBMIT_LOCK_RELEASE_FAILED", `the given lock failed to end a lease: ${error}`);
  try {
    end()?.catch(failed);
  } catch (error) {
    failed(error);
  }
}

function isKept(answer: AnswerToStore, { idempotency, submission }: Ending): boolean {
  if (idempotency === undefined || submission === undefined) return false;
  return IdentifiedSubmission.isStored(submission) && isWanted(idempotency.store, answer);
}

/** The application's own function may fail; the response is over, so nobody can be told but by a warning. */
function isWanted(policy: StorePolicy, { body, headers, status }: AnswerToStore): boolean {
  try {
    const bytes = typeof body === "string" ? Buffer.from(body) : body;
    return isStored(policy, { status, headers: headers ?? {}, body: bytes });
  } catch (error) {
    warnOnce(
      "SUBMIT_LOCK_STORE_FAILED",
      `idempotency.store failed, so the answer is not kept and a retry runs again: ${String(error)}`,
    );
    return false;
  }
}
