import type { IncomingMessage, ServerResponse } from "node:http";
import { isSubmitLockError } from "../errors.ts";
import type { UserId } from "../lock/submit-key.ts";
import type { NoUser, OnRefusal, ResolvedGuardOptions } from "./guard-options.ts";
import type { Refusal } from "./problem.ts";
import { Completion, findLease, type SharedLease } from "./request-lease.ts";

/** What is to happen to a request that came to a guard. */
export type Admission<Args extends unknown[]> =
  /** Go on without a lock: this request needs none, or may do without. */
  | { readonly kind: "pass" }
  /** Go on with the lock. It is given back when the response and all reported work are over. */
  | { readonly kind: "held"; readonly held: SharedLease }
  /** Do nothing: nobody is there to be answered, or somebody has answered. */
  | { readonly kind: "gone" }
  /** Answer, and do not go on. */
  | { readonly kind: "refused"; readonly answer: (...args: Args) => unknown };

/**
 * Finds the user of a request, makes the attempt and says what is to happen to the request.
 *
 * @throws (as a rejection) what the callbacks throw, `InvalidUserIdError`, and
 * `LockMisconfiguredError`: an operator has to see those, so they go to the error handler.
 */
export async function admit<Source, Args extends unknown[]>(
  options: ResolvedGuardOptions<Source, Args>,
  source: Source,
  req: IncomingMessage,
  res: ServerResponse,
): Promise<Admission<Args>> {
  // A preflight of CORS asks on behalf of a submission; it is none.
  if (req.method === "OPTIONS") return { kind: "pass" };
  // Before the first await, or an end that comes meanwhile would be missed.
  const completion = new Completion(req, res);
  let admission: Admission<Args> | undefined;
  try {
    if (options.skip !== undefined && (await options.skip(source))) return { kind: "pass" };
    const userId = await options.userId(source);
    admission = isNoUser(userId)
      ? refuse(options.onAnonymous, { reason: "anonymous" })
      : await hold(options, userId, req, completion);
    return admission;
  } finally {
    if (admission?.kind !== "held") completion.drop();
  }
}

async function hold<Source, Args extends unknown[]>(
  options: ResolvedGuardOptions<Source, Args>,
  userId: UserId,
  req: IncomingMessage,
  completion: Completion,
): Promise<Admission<Args>> {
  const key = options.lock.keyFor?.(userId);
  const held = key === undefined ? undefined : findLease(req, key);
  if (held !== undefined) {
    // Rule 13: this guard borrows; the one that acquired releases.
    completion.drop();
    return { kind: "held", held };
  }
  if (completion.isTooLate) return { kind: "gone" };
  const attempt = await options.lock.acquire(userId);
  switch (attempt.outcome) {
    case "contended": {
      const { expiresInMs } = attempt;
      return refuse(options.onContended, { reason: "contended", expiresInMs });
    }
    case "unavailable":
      if (isMisconfigured(attempt.cause)) throw attempt.cause;
      // An order without a lock for somebody who has left meanwhile helps nobody.
      if (completion.isTooLate) return { kind: "gone" };
      return refuse(options.onUnavailable, { reason: "unavailable", cause: attempt.cause });
    case "acquired":
      if (completion.isTooLate) {
        void attempt.lease.release();
        return { kind: "gone" };
      }
      return { kind: "held", held: completion.hold(req, attempt.lease) };
  }
}

function refuse<Args extends unknown[], Why extends Refusal>(
  onRefusal: OnRefusal<Args, Why>,
  why: Why,
): Admission<Args> {
  if (onRefusal === "proceed") return { kind: "pass" };
  return { kind: "refused", answer: (...args) => onRefusal(...args, why) };
}

function isNoUser(userId: UserId | NoUser): userId is NoUser {
  return userId === undefined || userId === null || userId === "";
}

/** A denied permission is no outage: if it were answered like one, nobody would look for it. */
function isMisconfigured(cause: Error): boolean {
  return isSubmitLockError(cause) && cause.code === "SUBMIT_LOCK_MISCONFIGURED";
}
