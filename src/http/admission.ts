import type { IncomingMessage, ServerResponse } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { InvalidOptionError, isSubmitLockError } from "../errors.ts";
import { publishReplay } from "../lock/channels.ts";
import type { LookUp } from "../lock/on-call.ts";
import type { StoredAnswer } from "../lock/record.ts";
import type { AcquireOptions } from "../lock/submission.ts";
import type { UserId } from "../lock/submit-key.ts";
import type { AttemptLike, NoUser, ResolvedGuardOptions } from "./options.ts";
import type { Refusal, RefusalReason, Replay } from "./refusals.ts";
import { endLease, findLease, RequestLease } from "./request-lease.ts";
import { isReadable, listedHeaders } from "./stored-answer.ts";
import { type IdentifiedSubmission, identify } from "./submission.ts";

/** The decision about a request that has reached a guard. */
export type Admission<Args extends unknown[]> =
  /** Go on without a lock: this request needs none, or may do without. */
  | { readonly kind: "pass" }
  /** Go on with the lock. It is given back when the response and all reported work are over. */
  | { readonly kind: "held"; readonly held: RequestLease; readonly isOwn: boolean }
  /** Do nothing: the client has left, or the request was answered. */
  | { readonly kind: "gone" }
  /** Answer, and do not go on. */
  | { readonly kind: "answered"; readonly answer: (...args: Args) => unknown };

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
    admission = isNoUser(userId)
      ? refused(options, source, { reason: "anonymous" })
      : await hold(options, source, userId, own);
    // A second answer, or one for a client that has left, would only do harm.
    if (admission.kind === "answered" && own.isTooLate) admission = { kind: "gone" };
    return admission;
  } finally {
    if (admission?.kind !== "held" || !admission.isOwn) own.drop();
  }
}

async function hold<Source, Args extends unknown[]>(
  options: ResolvedGuardOptions<Source, Args>,
  source: Source,
  userId: UserId,
  own: RequestLease,
): Promise<Admission<Args>> {
  const { idempotency, lock } = options;
  const key = lock.keyFor?.(userId);
  const held = key === undefined ? undefined : findLease(own.req, key);
  if (held !== undefined) {
    checkBorrowed(held, options);
    // Rule 13: this guard borrows; the one that acquired releases.
    return { kind: "held", held, isOwn: false };
  }
  const found =
    idempotency === undefined
      ? undefined
      : await identify(idempotency, source, own.req, options.content, key ?? "");
  if (own.isTooLate) return { kind: "gone" };
  if (idempotency === undefined || found === undefined || found.kind === "none") {
    return admitted(options, source, own, await lock.acquire(userId));
  }
  if (found.kind !== "submission") {
    const { kind: reason, ...why } = found;
    return refused(options, source, { reason, ...why });
  }
  const { fingerprint, submission } = found;
  const asked = { submission: { id: submission.id, fingerprint, retainMs: idempotency.retainMs } };
  let attempt = await lock.acquire(userId, asked);
  let hasEnded: true | undefined;
  const isInFlight = attempt.outcome === "contended" && attempt.sameSubmission === true;
  if (isInFlight && idempotency.waitMs > 0) {
    const seen = await waitForAnswer(options, userId, asked, idempotency.waitMs, own);
    if (seen.outcome === "completed" || seen.outcome === "mismatched") attempt = seen;
    else if (seen.outcome === "none") hasEnded = true;
  }
  if (attempt.outcome !== "completed") {
    return admitted(options, source, own, attempt, submission, hasEnded);
  }
  const { ageMs, answer } = attempt;
  const headers = listedHeaders(idempotency.storedHeaders, answer.headers);
  const replay: Replay = { reason: "replay", answer: { ...answer, headers }, ageMs };
  return replayed(options, source, own.req, key ?? "", submission, replay);
}

/**
 * Waits until the same submission is no longer in flight, and returns its outcome. Never takes the
 * lock: a click that waits for the first must not become a second order.
 */
async function waitForAnswer(
  { lock }: Pick<ResolvedGuardOptions<never, never>, "lock">,
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
  submission?: IdentifiedSubmission,
  hasEnded?: true,
): Admission<Args> {
  switch (attempt.outcome) {
    case "acquired":
      if (own.isTooLate) {
        endLease(attempt.lease, undefined, 0);
        return { kind: "gone" };
      }
      own.hold(attempt.lease, submission);
      return { kind: "held", held: own, isOwn: true };
    case "contended": {
      const { expiresInMs, isCooldown = false, sameSubmission = false } = attempt;
      const why = { expiresInMs, sameSubmission, answerUnavailable: false, hasEnded, isCooldown };
      return refused(options, source, { reason: "contended", ...why }, submission);
    }
    case "mismatched":
      return refused(
        options,
        source,
        { reason: "mismatch", inFlight: attempt.inFlight },
        submission,
      );
    case "unavailable":
      // A denied permission is not an outage: answered like one, it would never be looked at.
      if (isSubmitLockError(attempt.cause) && attempt.cause.code === "SUBMIT_LOCK_MISCONFIGURED") {
        throw attempt.cause;
      }
      // An order without a lock for a client that has left helps no one.
      if (own.isTooLate) return { kind: "gone" };
      return refused(options, source, { reason: "unavailable", cause: attempt.cause });
  }
}

function replayed<Source, Args extends unknown[]>(
  options: ResolvedGuardOptions<Source, Args>,
  source: Source,
  req: IncomingMessage,
  key: string,
  submission: IdentifiedSubmission,
  replay: Replay,
): Admission<Args> {
  if (isRepeatable(options, req, replay.answer)) {
    publishReplay({ key, ageMs: replay.ageMs, source: submission.source });
    return { kind: "answered", answer: (...args) => options.onReplay(...args, replay) };
  }
  const unavailable = {
    reason: "contended" as const,
    expiresInMs: 0,
    sameSubmission: true,
    answerUnavailable: true,
    isCooldown: false,
  };
  return refused(options, source, unavailable, submission);
}

function isRepeatable(
  { hasOnReplay }: { readonly hasOnReplay: boolean },
  { headers }: IncomingMessage,
  answer: StoredAnswer,
): boolean {
  // Another writer may have recorded a status that a guard never keeps.
  if (answer.status < 200 || answer.status >= 500) return false;
  return hasOnReplay || isReadable(answer, headers);
}

function refused<Source, Args extends unknown[]>(
  options: ResolvedGuardOptions<Source, Args>,
  source: Source,
  why: RefusalReason,
  submission?: IdentifiedSubmission,
): Admission<Args> {
  const choice = options.onRefusal[why.reason];
  if (choice === "proceed") return { kind: "pass" };
  const isDerived = submission?.source === "derived";
  // Not made for a client that has left before it is answered.
  const problem = () => options.problem(why, source, isDerived);
  const answer = (...args: Args) => choice(...args, { ...why, problem: problem() } as Refusal);
  return { kind: "answered", answer };
}

/** The outer guard's lease does not know which answers the inner one would keep: they would be lost. */
function checkBorrowed(
  held: RequestLease,
  { cooldownMs, idempotency }: Pick<RequestLease, "cooldownMs" | "idempotency">,
): void {
  const isLost = idempotency !== undefined && held.idempotency !== idempotency;
  if (!isLost && (cooldownMs === 0 || held.cooldownMs === cooldownMs)) return;
  throw new InvalidOptionError(
    `${isLost ? "idempotency" : "cooldownMs"}: expected it on the outermost of the guards that a request passes, got it on an inner one`,
  );
}

function isNoUser(userId: UserId | NoUser): userId is NoUser {
  return userId === undefined || userId === null || userId === "";
}
