import type { IncomingMessage, ServerResponse } from "node:http";
import { isSubmitLockError } from "../errors.ts";
import type { Lease } from "../lock/lease.ts";
import type { UserId } from "../lock/submit-key.ts";
import { Completion } from "./completion.ts";
import { choiceFor, type NoUser, type UncheckedOptions } from "./guard-options.ts";
import type { Refusal } from "./problem.ts";
import { addHolding, findHolding, type Holding, removeHolding } from "./request-lease.ts";

/** What is to happen to a request that came to a guard. */
export type Admission =
  /** Go on without a lock: this request needs none, or may do without. */
  | { readonly kind: "pass" }
  /** Go on with the lock. It is given back when the response and all reported work are over. */
  | { readonly kind: "held"; readonly holding: Holding }
  /** Do nothing: nobody is there to be answered, or somebody has answered. */
  | { readonly kind: "gone" }
  | { readonly kind: "refused"; readonly refusal: Refusal };

/**
 * Takes a request through user and attempt to its admission.
 *
 * @throws (as a rejection) what the callbacks throw, `InvalidUserIdError`, and
 * `LockMisconfiguredError`: an operator has to see those, so they go to the error handler.
 */
export async function admit<Source>(
  options: UncheckedOptions<Source>,
  source: Source,
  req: IncomingMessage,
  res: ServerResponse,
): Promise<Admission> {
  // A preflight of CORS asks on behalf of a submission; it is none.
  if (req.method === "OPTIONS") return { kind: "pass" };
  // Before the first await, or an end that comes meanwhile would be missed.
  const settlement = new Completion(req, res);
  let admission: Admission | undefined;
  try {
    if (options.skip !== undefined && (await options.skip(source))) return { kind: "pass" };
    const userId = await options.userId(source);
    admission = isNoUser(userId)
      ? refuse(options, { reason: "anonymous" })
      : await hold(options, userId, req, settlement);
    return admission;
  } finally {
    if (admission?.kind !== "held") settlement.drop();
  }
}

async function hold<Source>(
  options: UncheckedOptions<Source>,
  userId: UserId,
  req: IncomingMessage,
  settlement: Completion,
): Promise<Admission> {
  const key = options.lock.keyFor?.(userId);
  const held = key === undefined ? undefined : findHolding(req, key);
  if (held !== undefined) {
    // Only the guard that acquired releases.
    settlement.drop();
    return { kind: "held", holding: held };
  }
  if (settlement.isTooLate) return { kind: "gone" };
  const attempt = await options.lock.acquire(userId);
  switch (attempt.outcome) {
    case "contended":
      return refuse(options, { reason: "contended", expiresInMs: attempt.expiresInMs });
    case "unavailable":
      if (isMisconfigured(attempt.cause)) throw attempt.cause;
      // An order without a lock for somebody who has left meanwhile helps nobody.
      if (settlement.isTooLate) return { kind: "gone" };
      return refuse(options, { reason: "unavailable", cause: attempt.cause });
    case "acquired":
      if (settlement.isTooLate) {
        void attempt.lease.release();
        return { kind: "gone" };
      }
      return { kind: "held", holding: take(req, attempt.lease, settlement) };
  }
}

/** The request holds the lease until the submission is over; nobody waits for the release. */
function take(req: IncomingMessage, lease: Lease, settlement: Completion): Holding {
  const holding: Holding = { lease, begin: () => settlement.begin() };
  addHolding(req, holding);
  settlement.whenOver(() => {
    removeHolding(req, holding);
    void lease.release();
  });
  return holding;
}

function refuse(options: UncheckedOptions<never>, refusal: Refusal): Admission {
  return choiceFor(options, refusal) === "proceed"
    ? { kind: "pass" }
    : { kind: "refused", refusal };
}

function isNoUser(userId: UserId | NoUser): userId is NoUser {
  return userId === undefined || userId === null || userId === "";
}

/** "You may not" is no outage: letting it look like one would hide it for ever. */
function isMisconfigured(cause: Error): boolean {
  return isSubmitLockError(cause) && cause.code === "SUBMIT_LOCK_MISCONFIGURED";
}
