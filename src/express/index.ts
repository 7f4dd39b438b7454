import type { IncomingMessage, ServerResponse } from "node:http";
import type { Request, RequestHandler, Response } from "express";
import { AnsweredTwiceError, InvalidOptionError, isSubmitLockError } from "../errors.ts";
import { admit } from "../http/admission.ts";
import { resolveGuardOptions } from "../http/guard-options.ts";
import { type Refusal, sendProblem } from "../http/problem.ts";
import type { SharedLease, Work } from "../http/request-lease.ts";
import type { Lease } from "../lock/lease.ts";
import { invalidOption } from "../validation.ts";
import { warnOnce } from "../warn-once.ts";
import type { SubmitGuard, SubmitGuardOptions } from "./submit-guard.ts";

export type { LockLike, NoUser } from "../http/guard-options.ts";
export type { Answer, SubmitGuard, SubmitGuardOptions } from "./submit-guard.ts";

declare global {
  namespace Express {
    interface Request {
      /** The lease on the user's lock, where a guard of submit-lock has taken it. */
      submitLease?: Lease;
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
  const resolved = resolveGuardOptions(options, reject);

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
        case "refused":
          await admission.answer(req as Req, res as Response, (error) => next(asError(error)));
          return;
        case "pass":
          await goOn(undefined);
          return;
        case "held":
          (req as Request).submitLease = admission.held.lease;
          await goOn(admission.held);
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
        return run(call, next, held?.begin());
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
  work: Work | undefined,
): Promise<void> {
  let passedOn = false;
  // Later handlers go on when this one has settled; after an error only its answer is left.
  const forward: Next = (error) => {
    if (goesOn(error)) passedOn = true;
    next(error);
  };
  let returned: unknown;
  try {
    returned = handler(forward);
  } catch (error) {
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
    work?.finished();
    throw error;
  }
  if (passedOn) work?.detached();
  else work?.finished();
}

/** For a lease whose client has left and whose handler returned no promise. */
function warnIfHeldToMaxHold({ signal }: Lease): void {
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

function reject(
  _req: IncomingMessage,
  res: ServerResponse,
  _next: (error: unknown) => void,
  refusal: Refusal,
): void {
  sendProblem(res, refusal);
}

/** What Express takes for "go on". Passed as an error, it would start the handler of a refused request. */
function goesOn(error: unknown): boolean {
  return !error || error === "route" || error === "router";
}

function asError(error: unknown): unknown {
  if (!goesOn(error)) return error;
  return new AnsweredTwiceError(
    "an answer of onContended, onUnavailable or onAnonymous called next() without an error; it has to answer the request, or pass an error",
  );
}

function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof (value as PromiseLike<unknown> | undefined)?.then === "function";
}
