import { setTimeout as sleep } from "node:timers/promises";
import { InvalidOptionError, isSubmitLockError } from "../errors.ts";
import { publishReplay } from "../lock/channels.ts";
import type { LookUp } from "../lock/on-call.ts";
import type { AcquireOptions } from "../lock/submission.ts";
import type { UserId } from "../lock/submit-key.ts";
import type { AnswerFunction, ResolvedGuardOptions, WantedAnswer } from "./options.ts";
import type { AttemptLike, LockLike, Replay } from "./public.ts";
import { problemOf, type RefusalReason } from "./refusals.ts";
import { type Exchange, endLease, findLease, RequestLease } from "./request-lease.ts";
import { isReadable, listedHeaders } from "./stored-answer.ts";
import { identify } from "./submission.ts";

/** The decision about a request that has reached a guard. */
export type Admission<Args extends unknown[]> =
  /** Run the handler: under the lease `held`, or without one (`OPTIONS`, `skip`, "proceed"). */
  | {
      readonly kind: "pass";
      /** The lease that this guard or an outer one has acquired for the request. */
      readonly held?: RequestLease;
      /** The part of the answer to capture; `undefined`: none, or an outer guard captures it. */
      readonly wanted?: WantedAnswer | undefined;
    }
  /** Neither run the handler nor answer: the client has left, or the request was answered. */
  | { readonly kind: "gone" }
  /** Call `answer`, and do not run the handler. */
  | { readonly kind: "answered"; readonly answer: (...args: Args) => unknown };

/** For `cooldownMs` without a submission: the cooldown depends on the answer's status alone. */
const statusAlone: WantedAnswer = { storedHeaders: new Set(), maxBodyBytes: 0 };

/**
 * Finds user and submission of a request, tries to take the lock, and decides about the request.
 *
 * @throws (as a rejection) errors of the callbacks, `InvalidUserIdError`, `InvalidOptionError`,
 * `NoFingerprintError` and `LockMisconfiguredError`: adapters pass all to the error handler.
 */
export async function admit<Source, Args extends unknown[]>(
  options: ResolvedGuardOptions<Source, Args>,
  source: Source,
  exchange: Exchange,
): Promise<Admission<Args>> {
  // OPTIONS, such as a preflight of CORS, is not a submission.
  if (exchange.method === "OPTIONS") return { kind: "pass" };
  // Made before the first await, because the response may end during an await.
  const own = new RequestLease(exchange, options);
  let admission: Admission<Args> | undefined;
  try {
    if (options.skip !== undefined && (await options.skip(source))) return { kind: "pass" };
    const userId = await options.userId(source);
    // Rule 18: no user, no record.
    admission =
      userId === undefined || userId === null || userId === ""
        ? refused(options, options.onAnonymous, source, own, { reason: "anonymous" })
        : await hold(options, source, userId, own);
    // Do not answer a request that was answered already, or whose client has left.
    if (admission.kind === "answered" && own.isTooLate) admission = { kind: "gone" };
    return admission;
  } finally {
    if (admission?.kind !== "pass" || admission.held !== own) exchange.stop();
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
  const held = findLease(own.exchange.request, key);
  if (held !== undefined) {
    // The outer guard's options decide which answers are kept, and how long a cooldown is.
    const isLost = idempotency !== undefined && held.options.idempotency !== idempotency;
    if (isLost || (cooldownMs > 0 && held.options.cooldownMs !== cooldownMs)) {
      throw new InvalidOptionError(
        `${isLost ? "idempotency" : "cooldownMs"}: expected this option on the outermost of the guards that a request passes, got it on an inner one. Set it on the outermost guard`,
      );
    }
    // Rule 13: this guard uses the outer guard's lease, and the outer guard releases it.
    return { kind: "pass", held };
  }
  const found =
    idempotency && (await identify(idempotency, options, source, own.exchange, key ?? ""));
  if (own.isTooLate) return { kind: "gone" };
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
  // A handler that calls `lease.complete` may have kept a status that a guard never keeps.
  const isAnswer = stored.status >= 200 && stored.status < 500;
  if (
    isAnswer &&
    (options.onReplay || isReadable(replay.answer, own.exchange.header("accept-encoding")))
  ) {
    publishReplay({ key: key ?? "", ageMs, source: submission.source });
    const answer = options.onReplay ?? options.replay;
    return { kind: "answered", answer: (...args) => answer(...args, replay) };
  }
  const why = { expiresInMs: 0, sameSubmission: true, answerUnavailable: true, isCooldown: false };
  return refused(options, options.onContended, source, own, { reason: "contended", ...why });
}

/**
 * Waits up to `waitMs` until the submission that is in flight has ended, and returns its outcome;
 * `in-flight` if it has not, or the client has left. Never takes the lock: nothing must run twice.
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
    if (own.isTooLate) return { outcome: "in-flight" };
    const found = await lock.lookUp?.(userId, asked);
    // `unknown`: the store did not answer. Look again.
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
      if (own.isTooLate) {
        endLease(attempt.lease, undefined, 0, own.exchange);
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
      // A wrong password or permission is not an outage: an operator would not see it in a 503.
      if (isSubmitLockError(cause) && cause.code === "SUBMIT_LOCK_MISCONFIGURED") throw cause;
      // With "proceed", an order would run without a lock for a client that has left.
      if (own.isTooLate) return { kind: "gone" };
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
    // The problem is made when the answer is called: never for a client that has left before.
    const problem = problemOf(why, { docs, isDerived, prefersPage: options.prefersPage(source) });
    return respond(...args, { ...why, problem } as never);
  };
  return { kind: "answered", answer };
}
