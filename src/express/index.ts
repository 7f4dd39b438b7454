import type { IncomingMessage, ServerResponse } from "node:http";
import type { Request, RequestHandler, Response } from "express";
import { AnsweredTwiceError, InvalidOptionError, isSubmitLockError } from "../errors.ts";
import { admit } from "../http/admission.ts";
import { type LeaseLike, resolveGuardOptions } from "../http/guard-options.ts";
import { offeredTypes } from "../http/page.ts";
import { sendProblem } from "../http/problem.ts";
import type { Replay } from "../http/refusal.ts";
import type { RequestLease, SharedLease } from "../http/request-lease.ts";
import { ResponseCapture } from "../http/response-capture.ts";
import { headersToRepeat } from "../http/stored-headers.ts";
import type { Submission, Uploads } from "../http/submission.ts";
import type { Lease } from "../lock/lease.ts";
import { invalidOption, warnOnce } from "../validation.ts";
import type { SubmitGuard, SubmitGuardOptions } from "./submit-guard.ts";

export type { AttemptLike, LeaseLike, LockLike, NoUser } from "../http/guard-options.ts";
export type { IdempotencyOptions, NoId } from "../http/idempotency-options.ts";
export type { Problem, ProblemCode } from "../http/problem.ts";
export type {
  Anonymous,
  Contended,
  KeyMissing,
  Mismatch,
  Replay,
  Unavailable,
} from "../http/refusal.ts";
export type { StorePolicy } from "../http/store-policy.ts";
export type { Submission } from "../http/submission.ts";
export type { ReplayMessage } from "../lock/channels.ts";
export type { Answer, SubmitGuard, SubmitGuardOptions } from "./submit-guard.ts";

declare global {
  namespace Express {
    interface Request {
      /** The lease on the user's lock, where a guard of submit-lock has taken it. */
      submitLease?: Lease;
      /** What the request submits, where a guard with `idempotency` has recognised it. */
      submission?: Submission;
    }
  }
}

type Next = (error?: unknown) => void;

/**
 * One submission of a user at a time, for Express 4 and 5: 409 while another one is processed, 401
 * without a user, 503 while Redis does not answer. The lease is at `req.submitLease`.
 *
 * @throws InvalidOptionError naming the option, what was expected and what came.
 */
export function submitGuard<Req extends IncomingMessage = Request>(
  options: SubmitGuardOptions<Req>,
): SubmitGuard {
  const resolved = resolveGuardOptions(options, {
    reject: (_req, res, _next, { problem }) => sendProblem(res, problem),
    prefersPage,
    replay: (_req, res, _next, replay) => sendReplay(res, replay),
    content: (req) => {
      const { originalUrl, query, body, file, files } = req as unknown as Request & Uploads;
      return {
        originalUrl: originalUrl ?? req.url,
        query,
        body,
        hasParser: "body" in req,
        files: [file, files],
      };
    },
  });

  /** Never rejects: whatever goes wrong goes to `next`. */
  async function enter(
    req: IncomingMessage,
    res: ServerResponse,
    next: Next,
    goOn: (held: SharedLease | undefined) => unknown,
  ): Promise<void> {
    try {
      const admission = await admit(resolved, req as Req, req, res);
      switch (admission.kind) {
        case "gone":
          return;
        case "answered":
          await admission.answer(req as Req, res as Response, (error) => next(asError(error)));
          return;
        case "pass":
          await goOn(undefined);
          return;
        case "held": {
          const { held, own } = admission;
          (req as Request).submitLease = held.lease as Lease;
          if (held.submission !== undefined) (req as Request).submission = held.submission;
          watchAnswer(own, res);
          await goOn(held);
        }
      }
    } catch (error) {
      next(
        goesOn(error)
          ? new Error(`the submission failed with ${String(error)} as its reason`)
          : error,
      );
    }
  }

  function submitGuardMiddleware(req: IncomingMessage, res: ServerResponse, next: Next): void {
    void enter(req, res, next, () => next());
  }

  function protect(handler: RequestHandler): RequestHandler {
    checkHandler(handler);
    return function protectedHandler(this: unknown, req, res, next) {
      return enter(req, res, next, (held) => {
        const call = (forward: Next) => Reflect.apply(handler, this, [req, res, forward]);
        return run(call, next, held);
      });
    };
  }

  return Object.assign(submitGuardMiddleware, { protect: protect as SubmitGuard["protect"] });
}

function checkHandler(handler: unknown): void {
  if (typeof handler !== "function" || handler.length > 3) {
    throw invalidOption("protect", "a request handler of up to three parameters", handler);
  }
  if ("protect" in handler) {
    throw new InvalidOptionError(
      "protect: expected a request handler, got a guard: mount the guard itself, or write guard.protect(handler)",
    );
  }
}

/** Runs a handler, forwards what it throws, and reports its end as far as it can be seen. */
async function run(
  handler: (forward: Next) => unknown,
  next: Next,
  held: SharedLease | undefined,
): Promise<void> {
  const work = held?.begin();
  let passedOn = false;
  // Later handlers go on when this one has settled; after an error only its answer is left.
  const forward: Next = (error) => {
    if (goesOn(error)) passedOn = true;
    else held?.handlerFailed?.();
    next(error);
  };
  let returned: unknown;
  try {
    returned = handler(forward);
  } catch (error) {
    held?.handlerFailed?.();
    // It may have started something before it threw.
    work?.detached();
    throw error;
  }
  if (!isThenable(returned)) {
    // Callback style: nobody sees when it is done.
    work?.detached(passedOn ? undefined : warnIfHeldToMaxHold);
    return;
  }
  try {
    await returned;
  } catch (error) {
    held?.handlerFailed?.();
    work?.finished();
    throw error;
  }
  if (passedOn) work?.detached();
  else work?.finished();
}

/** For a lease whose client has left and whose handler returned no promise. */
function warnIfHeldToMaxHold({ signal }: LeaseLike): void {
  // Only now: the signal of a request that is answered is never made.
  signal.addEventListener("abort", warnOfUnseenHandler, { once: true });
}

function warnOfUnseenHandler(this: AbortSignal): void {
  const { reason } = this;
  if (!isSubmitLockError(reason) || reason.code !== "SUBMIT_LOCK_LOST") return;
  if (reason.reason !== "max-hold") return;
  warnOnce(
    "SUBMIT_LOCK_UNSEEN_HANDLER",
    "a client left, and its user stayed locked out for maxHoldMs, because the handler given to guard.protect() returned no promise: nobody could see that it was done. Write the handler async, and await what it starts, such as await pipeline(source, res)",
  );
}

function watchAnswer(own: RequestLease | undefined, res: ServerResponse): void {
  if (own?.wanted !== undefined) own.capturedBy(new ResponseCapture(res, own.wanted));
}

/** A request of Node's own, as Connect has them, cannot say what it accepts. */
function prefersPage(req: IncomingMessage & Partial<Pick<Request, "accepts">>): boolean {
  return typeof req.accepts === "function" && req.accepts([...offeredTypes]) === "html";
}

function sendReplay(res: ServerResponse, { answer }: Replay): void {
  if (res.headersSent) {
    res.destroy();
    return;
  }
  res.statusCode = answer.status;
  for (const [name, value] of headersToRepeat(res, answer.headers)) res.setHeader(name, value);
  res.setHeader("Idempotent-Replayed", "true");
  res.end(answer.body);
}

/** What Express takes for "go on". Passed as an error, it would start the handler of a refused request. */
function goesOn(error: unknown): boolean {
  return !error || error === "route" || error === "router";
}

function asError(error: unknown): unknown {
  if (!goesOn(error)) return error;
  return new AnsweredTwiceError(
    "an answer of one of the guard's functions (onContended and the others) called next() without an error; it has to answer the request, or pass an error",
  );
}

function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof (value as PromiseLike<unknown> | undefined)?.then === "function";
}
