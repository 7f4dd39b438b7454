import type { IncomingMessage, ServerResponse } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { InvalidOptionError, isSubmitLockError } from "../errors.ts";
import { publishReplay } from "../lock/channels.ts";
import type { LookUp } from "../lock/on-call.ts";
import type { AcquireOptions } from "../lock/submission.ts";
import type { UserId } from "../lock/submit-key.ts";
import type { WantedAnswer } from "./capture.ts";
import type { AnswerFunction, ResolvedGuardOptions } from "./options.ts";
import type { AttemptLike, LockLike, Replay } from "./public.ts";
import { problemOf, type RefusalReason } from "./refusals.ts";
import { endLease, findLease, RequestLease } from "./request-lease.ts";
import { isReadable, listedHeaders } from "./stored-answer.ts";
import { identify } from "./submission.ts";

/** The decision about a request that has reached a guard. */
export type Admission<Args extends unknown[]> =
  /** Go on, with the lock unless the request needs none, or may do without. */
  | {
      readonly kind: "pass";
      /** Given back when the response and all reported work are over. */
      readonly held?: RequestLease;
      /** The part of the answer that must be captured: none for a lock alone, or an outer guard's. */
      readonly wanted?: WantedAnswer | undefined;
    }
  /** Do nothing: the client has left, or the request was answered. */
  | { readonly kind: "gone" }
  /** Answer, and do not go on. */
  | { readonly kind: "answered"; readonly answer: (...args: Args) => unknown };

/** A cooldown depends on the status and on nothing else. */
const statusAlone: WantedAnswer = { storedHeaders: new Set(), maxBodyBytes: 0 };

/**
 * Finds the user and the submission of a request, makes the attempt and decides about the request.
 *
 * @throws (as a rejection) errors of the callbacks, `InvalidUserIdError`, `NoFingerprintError`, and
 * `LockMisconfiguredError`: an operator has to see those, so they go to the error handler.
 */
export async function admit<Source, Args extends unknown[]>(
  options: ResolvedGuardOptions<Source, Args>,
  source: Source,
  req: IncomingMessage,
  res: ServerResponse,
): Promise<Admission<Args>> {
  // A preflight of CORS asks on behalf of a submission; it is not one.
  if (req.method === "OPTIONS") return { kind: "pass" };
  // Before the first await, or an end of the response during it would be missed.
  const own = new RequestLease(req, res, options);
  let admission: Admission<Args> | undefined;
  try {
    if (options.skip !== undefined && (await options.skip(source))) return { kind: "pass" };
    const userId = await options.userId(source);
    // Rule 18: no user, no record.
    admission =
      userId === undefined || userId === null || userId === ""
        ? refused(options, options.onAnonymous, source, own, { reason: "anonymous" })
        : await hold(options, source, userId, own);
    // A second answer, or one for a client that has left, would only do harm.
    if (admission.kind === "answered" && own.response.isTooLate) admission = { kind: "gone" };
    return admission;
  } finally {
    if (admission?.kind !== "pass" || admission.held !== own) own.response.stop();
  }
}

async function hold<Source, Args extends unknown[]>(
  options: ResolvedGuardOptions<Source, Args>,
  source: Source,
  userId: UserId,
  own: RequestLease,
): Promise<Admission<Args>> {
  const { cooldownMs, idempotency, lock } = options;
  const key = lock.keyFor?.(userId);
  const held = findLease(own.req, key);
  if (held !== undefined) {
    // The outer guard's lease does not know which answers the inner one would keep.
    const isLost = idempotency !== undefined && held.options.idempotency !== idempotency;
    if (isLost || (cooldownMs > 0 && held.options.cooldownMs !== cooldownMs)) {
      throw new InvalidOptionError(
        `${isLost ? "idempotency" : "cooldownMs"}: expected it on the outermost of the guards that a request passes, got it on an inner one`,
      );
    }
    // Rule 13: this guard borrows; the one that acquired releases.
    return { kind: "pass", held };
  }
  const found =
    idempotency && (await identify(idempotency, source, own.req, options.content, key ?? ""));
  if (own.response.isTooLate) return { kind: "gone" };
  if (idempotency === undefined || found === undefined) {
    return admitted(options, source, own, await lock.acquire(userId));
  }
  if ("reason" in found) return refused(options, options.onKeyMissing, source, own, found);
  const { asked, submission } = found;
  own.submission = submission;
  let attempt = await lock.acquire(userId, asked);
  let hasEnded: true | undefined;
  if (attempt.outcome === "contended" && attempt.sameSubmission === true) {
    const seen = await waitForAnswer(lock, userId, asked, idempotency.waitMs, own);
    if (seen.outcome === "completed" || seen.outcome === "mismatched") attempt = seen;
    else if (seen.outcome === "none") hasEnded = true;
  }
  if (attempt.outcome !== "completed") return admitted(options, source, own, attempt, hasEnded);
  const { ageMs, answer: stored } = attempt;
  const headers = listedHeaders(idempotency.storedHeaders, stored.headers);
  const replay: Replay = { reason: "replay", answer: { ...stored, headers }, ageMs };
  // Another writer may have recorded a status that a guard never keeps.
  const isAnswer = stored.status >= 200 && stored.status < 500;
  if (isAnswer && (options.onReplay || isReadable(replay.answer, own.req.headers))) {
    publishReplay({ key: key ?? "", ageMs, source: submission.source });
    const answer = options.onReplay ?? options.replay;
    return { kind: "answered", answer: (...args) => answer(...args, replay) };
  }
  const why = { expiresInMs: 0, sameSubmission: true, answerUnavailable: true, isCooldown: false };
  return refused(options, options.onContended, source, own, { reason: "contended", ...why });
}

/**
 * Waits until the same submission is no longer in flight, and returns its outcome. Never takes the
 * lock: a click that waits for the first must not become a second order.
 */
async function waitForAnswer(
  lock: LockLike,
  userId: UserId,
  asked: AcquireOptions,
  waitMs: number,
  own: RequestLease,
): Promise<LookUp> {
  const endsAt = performance.now() + waitMs;
  for (let pauseMs = 25; ; pauseMs = Math.min(2 * pauseMs, 200)) {
    const leftMs = endsAt - performance.now();
    if (leftMs <= 0) return { outcome: "in-flight" };
    await sleep(Math.min(pauseMs, leftMs));
    if (own.response.isTooLate) return { outcome: "in-flight" };
    const found = await lock.lookUp?.(userId, asked);
    // A store that does not say is asked again.
    if (found !== undefined && found.outcome !== "in-flight" && found.outcome !== "unknown") {
      return found;
    }
  }
}

function admitted<Source, Args extends unknown[]>(
  options: ResolvedGuardOptions<Source, Args>,
  source: Source,
  own: RequestLease,
  attempt: Exclude<AttemptLike, { outcome: "completed" }>,
  hasEnded?: true,
): Admission<Args> {
  switch (attempt.outcome) {
    case "acquired": {
      if (own.response.isTooLate) {
        endLease(attempt.lease, undefined, 0);
        return { kind: "gone" };
      }
      own.hold(attempt.lease);
      const ofStatus = options.cooldownMs > 0 ? statusAlone : undefined;
      const wanted = own.submission === undefined ? ofStatus : options.idempotency;
      return { kind: "pass", held: own, wanted };
    }
    case "contended": {
      const { expiresInMs, isCooldown = false, sameSubmission = false } = attempt;
      const why = { expiresInMs, sameSubmission, answerUnavailable: false, hasEnded, isCooldown };
      return refused(options, options.onContended, source, own, { reason: "contended", ...why });
    }
    case "mismatched": {
      const why = { reason: "mismatch", inFlight: attempt.inFlight } as const;
      return refused(options, options.onMismatch, source, own, why);
    }
    case "unavailable": {
      const { cause } = attempt;
      // A denied permission is not an outage: answered like one, it would never be looked at.
      if (isSubmitLockError(cause) && cause.code === "SUBMIT_LOCK_MISCONFIGURED") throw cause;
      // An order without a lock for a client that has left helps no one.
      if (own.response.isTooLate) return { kind: "gone" };
      const why = { reason: "unavailable", cause } as const;
      return refused(options, options.onUnavailable, source, own, why);
    }
  }
}

function refused<Source, Args extends unknown[]>(
  options: ResolvedGuardOptions<Source, Args>,
  choice: "reject" | "proceed" | AnswerFunction<Args, never> = "reject",
  source: Source,
  own: RequestLease,
  why: RefusalReason,
): Admission<Args> {
  if (choice === "proceed") return { kind: "pass" };
  const respond = choice === "reject" ? options.reject : choice;
  const answer = (...args: Args) => {
    const { docs } = options.idempotency ?? {};
    const isDerived = own.submission?.source === "derived";
    // Not made for a client that has left before it is answered.
    const problem = problemOf(why, { docs, isDerived, prefersPage: options.prefersPage(source) });
    return respond(...args, { ...why, problem } as never);
  };
  return { kind: "answered", answer };
}
