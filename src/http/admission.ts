import { InvalidOptionError, isSubmitLockError } from "../errors.ts";
import { refusalChannel, replayChannel } from "../lock/channels.ts";
import type { RepeatAttempt } from "../lock/repeats.ts";
import {
  codeOf,
  type ProblemCode,
  prefersHtml,
  problemFor,
  type RefusalReason,
} from "../problem.ts";
import { performance } from "../time.ts";
import { warnOnce } from "../validation.ts";
import type { ResolvedGuardOptions } from "./options.ts";
import type { AnswerFunction, Exchange, WantedAnswer } from "./port.ts";
import type { Replay } from "./public.ts";
import {
  endLease,
  findLease,
  type HoldOptions,
  isTooLate,
  publishFailure,
  RequestLease,
} from "./request-lease.ts";
import { isReadable, listedHeaders } from "./stored-answer.ts";
import { type IdentifiedSubmission, identifyRequest, neverBegun } from "./submission.ts";

export type Admission<Args extends unknown[]> =
  /** Run the handler under the lease `held`. */
  | {
      readonly kind: "run";
      readonly held: RequestLease;
      /** Rule 13: false if an outer guard took the lease: only that guard ends the lease. */
      readonly isOwner: boolean;
      /** The part of the answer to capture; `undefined` for none. */
      readonly wanted?: WantedAnswer | undefined;
    }
  /** Run the handler without a lock. Only "proceed" of `onUnavailable` sets the `submission`. */
  | { readonly kind: "unlocked"; readonly submission?: IdentifiedSubmission | undefined }
  /** The client has left, or the request was answered: neither run the handler nor answer. */
  | { readonly kind: "gone" }
  /** Call `answer`, not the handler: `answer` sends a refusal if `code` is set, else a replay. */
  | {
      readonly kind: "answer";
      readonly code?: ProblemCode | undefined;
      readonly answer: (...args: Args) => unknown;
    };

const unlocked = { kind: "unlocked" } as const;
const gone = { kind: "gone" } as const;

/** Captures only the status: without a submission, a cooldown needs nothing else of the answer. */
const statusAlone: WantedAnswer = { storedHeaders: new Set(), maxBodyBytes: 0 };

/**
 * Takes the user's lock for a request, and returns what the adapter must do with the request.
 * Rejects with errors that the framework's error handler should get.
 */
export async function admit<Source, Args extends unknown[]>(
  options: ResolvedGuardOptions<Source, Args>,
  source: Source,
  exchange: Exchange,
): Promise<Admission<Args>> {
  if (exchange.method === "OPTIONS" && isPreflight(exchange)) return unlocked;
  // Watch before the first await, because the response may end during an await.
  exchange.watch();
  let isOwner = false;
  try {
    const admission = await decide(options, source, exchange);
    // Do not answer a request that was answered already, or whose client has left.
    if (admission.kind === "answer" && isTooLate(exchange)) return gone;
    isOwner = admission.kind === "run" && admission.isOwner;
    return admission;
  } finally {
    if (!isOwner) exchange.stop();
  }
}

/**
 * Only a browser's preflight, which has neither a user nor a body, skips the lock: a handler of
 * `app.all` may place orders on other `OPTIONS`.
 */
function isPreflight(exchange: Exchange): boolean {
  const has = (name: string) => exchange.header(name) !== undefined;
  const ofOthers = ["authorization", "content-type", "cookie", "idempotency-key"];
  return ["origin", "access-control-request-method"].every(has) && !ofOthers.some(has);
}

async function decide<Source, Args extends unknown[]>(
  options: ResolvedGuardOptions<Source, Args>,
  source: Source,
  exchange: Exchange,
): Promise<Admission<Args>> {
  const { cooldownMs, idempotency, lock } = options;
  if (options.skip !== undefined && (await options.skip(source))) return unlocked;

  const userId = await options.userId(source);
  // A request without a user takes no lock and leaves no record.
  if (userId === undefined || userId === null || userId === "") {
    if (++options.anonymousAtFirst === 3) {
      warnOnce(
        "SUBMIT_LOCK_NO_USER",
        "userId has found no user in any request so far. Mount the session or the authentication before the guard, and return the user's id",
      );
    }
    if (options.onAnonymous === "proceed") return unlocked;
    return refuse(options, exchange, { reason: "anonymous" });
  }
  options.anonymousAtFirst = Number.POSITIVE_INFINITY;

  const key = lock.keyFor(userId);
  const outer = findLease(exchange.request, key);
  if (outer !== undefined) {
    checkInnerGuard(options, outer);
    return { kind: "run", held: outer, isOwner: false };
  }

  const submission =
    idempotency &&
    (await identifyRequest(idempotency, options, source, exchange, key, userId).catch((error) =>
      fail(options, exchange, error, key),
    ));
  if (submission !== undefined && "reason" in submission) {
    return refuse(options, exchange, submission, key);
  }
  if (exchange.isAnswered) {
    // Other code, such as a time-out, has answered the client, so the handler must not run.
    warnOnce(
      "SUBMIT_LOCK_ANSWERED_BEFORE",
      "a request was answered before the guard asked for its lock, so its handler did not run. Answer in the handler, and do not call next() after an answer",
    );
  }
  if (isTooLate(exchange)) return gone;

  const refused = (why: RefusalReason) => refuse(options, exchange, why, key, submission);
  let attempt: RepeatAttempt;
  if (idempotency === undefined || submission === undefined) attempt = await lock.acquire(userId);
  else {
    const { id, fingerprint } = submission;
    const asked = { identity: { id, fingerprint }, retainMs: idempotency.retainMs };
    const isGone = () => isTooLate(exchange);
    const endsAt = performance.now() + idempotency.waitMs;
    const leftMs = () => Math.max(0, Math.round(endsAt - performance.now()));
    do attempt = await lock.acquireOrWait(userId, asked, leftMs(), isGone);
    while (attempt.outcome === "told" && attempt.answer.status === neverBegun.status);
  }
  switch (attempt.outcome) {
    case "acquired": {
      if (isTooLate(exchange)) {
        const told = idempotency?.waitMs ? neverBegun : undefined;
        endLease(attempt.lease, undefined, 0, exchange, told);
        return gone;
      }
      const held = new RequestLease(exchange, attempt.lease, options, submission);
      const ofStatus = cooldownMs > 0 ? statusAlone : undefined;
      const wanted = submission === undefined ? ofStatus : idempotency;
      return { kind: "run", held, isOwner: true, wanted };
    }
    case "completed":
    case "told": {
      const { ageMs } = attempt;
      const isTold = attempt.outcome === "told";
      const replay = replayOf(options, attempt, exchange, isTold);
      if (replay !== undefined) {
        // Publish in `answer`, which is not called for a client that has left.
        const answer = (...args: Args) => {
          if (replayChannel.hasSubscribers) {
            const { keyPrefix } = lock;
            const { id, source = "key" } = submission ?? {};
            replayChannel.publish({ key, keyPrefix, submission: id, ageMs, isTold, source });
          }
          return (options.onReplay ?? options.replay)(...args, replay);
        };
        return { kind: "answer", answer };
      }
      const why = { expiresInMs: 0, sameSubmission: true, isCooldown: false } as const;
      const ended = isTold && ({ hasEnded: true } as const);
      return refused({ reason: "contended", ...why, answerUnavailable: !isTold, ...ended });
    }
    case "contended": {
      const { expiresInMs, hasEnded, isCooldown = false, sameSubmission = false } = attempt;
      if (exchange.method === "GET") {
        // The guard is probably mounted on the whole application.
        warnOnce(
          "SUBMIT_LOCK_GUARDED_READ",
          "a GET was refused with 409, because its user's lock is held. Mount the guard on the routes that place orders, and not on the whole application, or skip such requests",
        );
      }
      const why = { expiresInMs, sameSubmission, answerUnavailable: false, hasEnded, isCooldown };
      return refused({ reason: "contended", ...why });
    }
    case "mismatched":
      return refused({ reason: "mismatch", inFlight: attempt.inFlight });
    case "unavailable": {
      const { cause, isRepeat } = attempt;
      // Throw the error of a wrong password or permission: the shop's error handler can log it.
      if (isSubmitLockError(cause) && cause.code === "SUBMIT_LOCK_MISCONFIGURED") {
        return fail(options, exchange, cause, key, submission);
      }
      // "proceed" runs no repeat that this process knows: the first run may have placed the order.
      // A closed lock is not an outage: Redis still has the locks, so no order may run without one.
      const isOutage = cause.code !== "SUBMIT_LOCK_CLOSED";
      if (options.onUnavailable === "proceed" && isOutage && isRepeat !== true) {
        return isTooLate(exchange) ? gone : { kind: "unlocked", submission };
      }
      return refused({ reason: "unavailable", cause });
    }
  }
}

function fail(
  { lock: { keyPrefix } }: HoldOptions,
  exchange: Exchange,
  error: unknown,
  key: string,
  submission?: IdentifiedSubmission,
): never {
  publishFailure(error, exchange, { key, keyPrefix, submission });
  throw error;
}

/** @throws InvalidOptionError if the inner guard has a cooldown or `idempotency` of its own. */
function checkInnerGuard({ cooldownMs, idempotency }: HoldOptions, outer: RequestLease): void {
  const isLost = idempotency !== undefined && outer.options.idempotency !== idempotency;
  if (!isLost && (cooldownMs === 0 || outer.options.cooldownMs === cooldownMs)) return;
  throw new InvalidOptionError(
    `${isLost ? "idempotency" : "cooldownMs"}: expected this option on the outermost of the guards that a request passes, got it on an inner one. Set it on the outermost guard alone`,
  );
}

/**
 * Returns the answer that a repeat gets; `undefined` if the repeat must be refused.
 * @param isTold whether the repeat has waited for the answer, and so gets a 5xx as well.
 */
function replayOf(
  { idempotency, onReplay }: ResolvedGuardOptions<never, never>,
  { ageMs, answer: stored }: Omit<Replay, "reason">,
  exchange: Exchange,
  isTold: boolean,
): Replay | undefined {
  const headers = listedHeaders(idempotency?.storedHeaders ?? new Set(), stored.headers);
  // Without its body, an answer must not announce the body's coding.
  if (stored.body === undefined) delete headers["content-encoding"];
  const answer = { ...stored, headers };
  // A 1xx record has no answer to repeat. A handler that calls `lease.complete` may keep a 5xx.
  if (answer.status < 200 || (answer.status >= 500 && !isTold)) return undefined;
  const isShown = onReplay !== undefined || isReadable(answer, exchange.header("accept-encoding"));
  return isShown ? { reason: "replay", answer, ageMs } : undefined;
}

function refuse<Source, Args extends unknown[]>(
  options: ResolvedGuardOptions<Source, Args>,
  exchange: Exchange,
  why: RefusalReason,
  key?: string,
  submission?: IdentifiedSubmission,
): Admission<Args> {
  const choice = options[optionFor[why.reason]];
  const respond: AnswerFunction<Args, never> =
    typeof choice === "function" ? choice : options.reject;
  const isDerived =
    submission === undefined
      ? options.idempotency?.submissionId !== undefined
      : submission.source === "derived";
  const code = codeOf(why);
  const answer = (...args: Args) => {
    const { docs } = options.idempotency ?? {};
    // Make and publish the refusal here: `answer` is not called for a client that has left.
    const prefersPage = prefersHtml(exchange.header("accept"));
    const problem = problemFor(code, why, { docs, isDerived, prefersPage });
    if (refusalChannel.hasSubscribers) {
      const { status } = problem;
      const { keyPrefix } = options.lock;
      refusalChannel.publish({ code, status, submission: submission?.id, key, keyPrefix });
    }
    return respond(...args, { ...why, problem, prefersPage } as never);
  };
  return { kind: "answer", code, answer };
}

const optionFor = {
  anonymous: "onAnonymous",
  contended: "onContended",
  mismatch: "onMismatch",
  unavailable: "onUnavailable",
  "key-missing": "onKeyMissing",
  "key-invalid": "onKeyMissing",
  "id-invalid": "onKeyMissing",
} as const;
