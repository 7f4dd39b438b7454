import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from "node:http";
import { InvalidOptionError, isSubmitLockError } from "../errors.ts";
import { publishReplay } from "../lock/channels.ts";
import type { StoredAnswer } from "../lock/record.ts";
import type { AcquireOptions } from "../lock/submission.ts";
import type { UserId } from "../lock/submit-key.ts";
import { readableAnswer } from "./content-encoding.ts";
import { giveBack } from "./end-submission.ts";
import type {
  AttemptLike,
  LockLike,
  NoUser,
  OnRefusal,
  ResolvedGuardOptions,
} from "./guard-options.ts";
import type { ResolvedIdempotency } from "./idempotency-options.ts";
import type { Refusal, RefusalReason, Replay } from "./refusal.ts";
import { Completion, findLease, type RequestLease, type SharedLease } from "./request-lease.ts";
import { listedHeaders } from "./stored-headers.ts";
import { IdentifiedSubmission, identify } from "./submission.ts";
import { waitForAnswer } from "./wait.ts";

/** What is to happen to a request that came to a guard. */
export type Admission<Args extends unknown[]> =
  /** Go on without a lock: this request needs none, or may do without. */
  | { readonly kind: "pass" }
  /** Go on with the lock. It is given back when the response and all reported work are over. */
  | { readonly kind: "held"; readonly held: SharedLease; readonly own: RequestLease | undefined }
  /** Do nothing: nobody is there to be answered, or somebody has answered. */
  | { readonly kind: "gone" }
  /** Answer, and do not go on. */
  | { readonly kind: "answered"; readonly answer: (...args: Args) => unknown };

/**
 * Finds the user and the submission of a request, makes the attempt and says what is to happen to
 * the request.
 *
 * @throws (as a rejection) what the callbacks throw, `InvalidUserIdError`, `NoFingerprintError`, and
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
    // Rule 18: no user, no record.
    admission = isNoUser(userId)
      ? refused(options, source, options.onAnonymous, { reason: "anonymous" })
      : await hold(options, source, userId, req, completion);
    // Somebody else has answered meanwhile, or nobody is there: a second answer would only do harm.
    if (admission.kind === "answered" && completion.isTooLate) admission = { kind: "gone" };
    return admission;
  } finally {
    if (admission?.kind !== "held" || admission.own === undefined) completion.drop();
  }
}

async function hold<Source, Args extends unknown[]>(
  options: ResolvedGuardOptions<Source, Args>,
  source: Source,
  userId: UserId,
  req: IncomingMessage,
  completion: Completion,
): Promise<Admission<Args>> {
  const { idempotency, lock } = options;
  const key = lock.keyFor?.(userId);
  const held = key === undefined ? undefined : findLease(req, key);
  if (held !== undefined) {
    checkBorrowed(held, options);
    // Rule 13: this guard borrows; the one that acquired releases.
    return { kind: "held", held, own: undefined };
  }
  let submission: IdentifiedSubmission | undefined;
  if (idempotency !== undefined) {
    const found = await identify(idempotency, source, req, options.content, key ?? "");
    if (found.kind === "submission") submission = found.submission;
    else if (found.kind !== "none") {
      const { kind: reason, ...why } = found;
      return refused(options, source, options.onKeyMissing, { reason, ...why });
    }
  }
  if (completion.isTooLate) return { kind: "gone" };
  if (idempotency === undefined || submission === undefined) {
    const attempt = await lock.acquire(userId);
    return admitted(options, source, req, completion, undefined, attempt);
  }
  const asked: AcquireOptions = {
    submission: {
      id: submission.id,
      fingerprint: IdentifiedSubmission.fingerprint(submission),
      retainMs: idempotency.retainMs,
    },
  };
  const attempt = await lock.acquire(userId, asked);
  const settled = mayWait(idempotency, attempt)
    ? await settle(idempotency, lock, userId, asked, completion, attempt)
    : attempt;
  if (settled.outcome !== "completed") {
    return admitted(options, source, req, completion, submission, settled);
  }
  const { answer, ageMs } = settled;
  const headers = listedHeaders(idempotency.storedHeaders, answer.headers);
  const listed = { answer: { ...answer, headers }, ageMs };
  return await replayed(options, source, req, key ?? "", submission, listed);
}

/** An attempt, and whether the submission that was waited for is over. */
type Settled = AttemptLike & { readonly hasEnded?: boolean };

/** Whether the same submission is in flight, and its answer is to be waited for. */
function mayWait(
  { waitMs }: { readonly waitMs: number },
  attempt: AttemptLike,
): attempt is ContendedAttempt {
  return waitMs > 0 && attempt.outcome === "contended" && attempt.sameSubmission === true;
}

type ContendedAttempt = Extract<AttemptLike, { outcome: "contended" }>;

/** Waits for the same submission that is in flight. */
async function settle(
  { waitMs }: { readonly waitMs: number },
  lock: LockLike,
  userId: UserId,
  asked: AcquireOptions,
  completion: Completion,
  attempt: ContendedAttempt,
): Promise<Settled> {
  const look = async () => (await lock.lookUp?.(userId, asked)) ?? { outcome: "unknown" as const };
  const found = await waitForAnswer(look, waitMs, () => completion.isTooLate);
  if (found.outcome === "completed" || found.outcome === "mismatched") return found;
  return found.outcome === "none" ? { ...attempt, hasEnded: true } : attempt;
}

function admitted<Source, Args extends unknown[]>(
  options: ResolvedGuardOptions<Source, Args>,
  source: Source,
  req: IncomingMessage,
  completion: Completion,
  submission: IdentifiedSubmission | undefined,
  attempt: Exclude<Settled, { outcome: "completed" }>,
): Admission<Args> {
  switch (attempt.outcome) {
    case "contended": {
      const { expiresInMs, hasEnded, isCooldown = false, sameSubmission = false } = attempt;
      const contended = {
        reason: "contended" as const,
        expiresInMs,
        sameSubmission,
        answerUnavailable: false,
        hasEnded,
        isCooldown,
      };
      return refused(options, source, options.onContended, contended, submission);
    }
    case "mismatched": {
      const mismatch = { reason: "mismatch" as const, inFlight: attempt.inFlight };
      return refused(options, source, options.onMismatch, mismatch, submission);
    }
    case "unavailable":
      if (isMisconfigured(attempt.cause)) throw attempt.cause;
      // An order without a lock for somebody who has left meanwhile helps nobody.
      if (completion.isTooLate) return { kind: "gone" };
      return refused(options, source, options.onUnavailable, {
        reason: "unavailable",
        cause: attempt.cause,
      });
    case "acquired": {
      if (completion.isTooLate) {
        giveBack(attempt.lease);
        return { kind: "gone" };
      }
      const own = completion.hold(req, attempt.lease, submission, options);
      return { kind: "held", held: own, own };
    }
  }
}

async function replayed<Source, Args extends unknown[]>(
  options: ResolvedGuardOptions<Source, Args>,
  source: Source,
  req: IncomingMessage,
  key: string,
  submission: IdentifiedSubmission,
  { ageMs, answer }: Omit<Replay, "reason">,
): Promise<Admission<Args>> {
  const replayable = await replayableAnswer(answer, req.headers, options.hasOnReplay);
  if (replayable !== undefined) {
    publishReplay({ key, ageMs, source: submission.source });
    const replay: Replay = { reason: "replay", answer: replayable, ageMs };
    return { kind: "answered", answer: (...args) => options.onReplay(...args, replay) };
  }
  const unavailable = {
    reason: "contended" as const,
    expiresInMs: 0,
    sameSubmission: true,
    answerUnavailable: true,
    isCooldown: false,
  };
  return refused(options, source, options.onContended, unavailable, submission);
}

/**
 * `undefined` where not enough of it was kept, or this client cannot read it, or another writer has
 * recorded a status that a guard never keeps.
 */
async function replayableAnswer(
  answer: StoredAnswer,
  headers: IncomingHttpHeaders,
  hasOnReplay: boolean,
): Promise<StoredAnswer | undefined> {
  if (answer.status < 200 || answer.status >= 500) return undefined;
  if (hasOnReplay) return answer;
  if (answer.body !== undefined) return await readableAnswer(answer, headers);
  // A redirect says everything in its headers.
  const isRedirect = answer.status >= 300 && answer.status < 400;
  return isRedirect || answer.headers["location"] !== undefined ? answer : undefined;
}

function refused<Source, Args extends unknown[], Why extends Refusal>(
  options: ResolvedGuardOptions<Source, Args>,
  source: Source,
  choice: OnRefusal<Args, Why>,
  why: Omit<Why, "problem">,
  submission?: IdentifiedSubmission,
): Admission<Args> {
  if (choice === "proceed") return { kind: "pass" };
  const isDerived = submission?.source === "derived";
  // Not made for a client that has left before it is answered.
  const problem = () => options.problem(why as RefusalReason, source, isDerived);
  const answer = (...args: Args) => choice(...args, { ...why, problem: problem() } as Why);
  return { kind: "answered", answer };
}

/** The outer guard's lease knows nothing of what the inner one would keep: that would be lost in silence. */
function checkBorrowed(
  held: SharedLease,
  {
    cooldownMs,
    idempotency,
  }: { cooldownMs: number; idempotency: ResolvedIdempotency<never> | undefined },
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

/** A denied permission is no outage: if it were answered like one, nobody would look for it. */
function isMisconfigured(cause: Error): boolean {
  return isSubmitLockError(cause) && cause.code === "SUBMIT_LOCK_MISCONFIGURED";
}
