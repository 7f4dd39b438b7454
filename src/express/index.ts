import type { IncomingMessage, ServerResponse } from "node:http";
import type { Request, RequestHandler, Response } from "express";
import { AnsweredTwiceError } from "../errors.ts";
import { admit } from "../http/admission.ts";
import type { Work } from "../http/completion.ts";
import { checkGuardOptions, choiceFor, type GuardOptions } from "../http/guard-options.ts";
import { type Refusal, sendProblem } from "../http/problem.ts";
import type { Holding } from "../http/request-lease.ts";
import type { Lease } from "../lock/lease.ts";
import { invalidOption } from "../validation.ts";

export type { LockLike, NoUser } from "../http/guard-options.ts";

declare global {
  namespace Express {
    interface Request {
      /** The lease on the user's lock, where a guard of submit-lock has taken it. */
      submitLease?: Lease;
    }
  }
}

/**
 * Answers a request that was not let through. Its `next` takes an error and nothing else: whatever
 * this function does, the handler does not run.
 */
export type Answer<Req extends IncomingMessage, Info> = (
  req: Req,
  res: Response,
  next: (error: unknown) => void,
  info: Info,
) => unknown;

/** The options of {@link submitGuard} for Express. */
export interface SubmitGuardOptions<Req extends IncomingMessage = Request>
  extends GuardOptions<Req> {
  /** A request without a user: 401, go on without a lock, or answer. @defaultValue "reject" */
  readonly onAnonymous?: "reject" | "proceed" | Answer<Req, { reason: "anonymous" }> | undefined;
  /** Another submission of the user is under way. @defaultValue 409 */
  readonly onContended?: Answer<Req, { reason: "contended"; expiresInMs: number }> | undefined;
  /** Redis is away: 503, go on without a lock, or answer. @defaultValue "reject" */
  readonly onUnavailable?:
    | "reject"
    | "proceed"
    | Answer<Req, { reason: "unavailable"; cause: Error }>
    | undefined;
}

/** Middleware that lets one submission of a user through at a time. */
export interface SubmitGuard {
  /**
   * Holds the lock until the response has ended. Middleware cannot see when a handler is done:
   * after a client has left, the lock is kept until the handler ends the response, or for
   * `maxHoldMs`. Prefer {@link SubmitGuard.protect}.
   */
  (req: IncomingMessage, res: ServerResponse, next: (error?: unknown) => void): void;
  /**
   * The handler under the lock, to be mounted in its place. The lock is held until the promise of
   * the handler has settled and the response is over. Its rejections go to the error handler, on
   * Express 4 too.
   *
   * @throws InvalidOptionError for anything but a handler of up to three parameters.
   */
  // biome-ignore lint/suspicious/noExplicitAny: the types of the route are kept, whatever they are.
  protect<Handler extends RequestHandler<any, any, any, any, any>>(handler: Handler): Handler;
}

type Next = (error?: unknown) => void;

/**
 * One submission of a user at a time, for Express 4 and 5: 409 while another one is under way, 401
 * without a user, 503 while Redis is away. The lease is at `req.submitLease`.
 *
 * @throws InvalidOptionError naming the option, what was expected and what came.
 */
export function submitGuard<Req extends IncomingMessage = Request>(
  options: SubmitGuardOptions<Req>,
): SubmitGuard {
  checkGuardOptions(options);

  /** Never rejects: whatever goes wrong goes to `next`. */
  async function enter(
    req: IncomingMessage,
    res: ServerResponse,
    next: Next,
    goOn: (holding: Holding | undefined) => unknown,
  ): Promise<void> {
    try {
      const admission = await admit(options, req as Req, req, res);
      if (admission.kind === "refused") {
        await refuse(options, admission.refusal, req as Req, res as Response, next);
        return;
      }
      if (admission.kind === "gone") return;
      if (admission.kind === "held") (req as Request).submitLease = admission.holding.lease;
      await goOn(admission.kind === "held" ? admission.holding : undefined);
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
    if (typeof handler !== "function" || handler.length > 3) {
      throw invalidOption("protect", "a request handler of up to three parameters", handler);
    }
    return function protectedHandler(this: unknown, req, res, next) {
      return enter(req, res, next, (holding) => {
        const call = (forward: Next) => Reflect.apply(handler, this, [req, res, forward]);
        return run(call, next, holding?.begin());
      });
    };
  }

  return Object.assign(submitGuardMiddleware, { protect: protect as SubmitGuard["protect"] });
}

/** Runs a handler, forwards what it throws, and reports its end as far as it can be seen. */
async function run(
  handler: (forward: Next) => unknown,
  next: Next,
  work: Work | undefined,
): Promise<void> {
  let passedOn = false;
  // Work of later handlers goes on when this one has settled; an error is all that is left to answer.
  const forward: Next = (error) => {
    if (goesOn(error)) passedOn = true;
    next(error);
  };
  let returned: unknown;
  try {
    returned = handler(forward);
  } catch (error) {
    // It may have started something before.
    work?.unseen();
    throw error;
  }
  if (!isThenable(returned)) {
    // Callback style: nobody sees when it is done.
    work?.unseen();
    return;
  }
  try {
    await returned;
  } catch (error) {
    work?.done();
    throw error;
  }
  if (passedOn) work?.unseen();
  else work?.done();
}

async function refuse<Req extends IncomingMessage>(
  options: SubmitGuardOptions<Req>,
  refusal: Refusal,
  req: Req,
  res: Response,
  next: Next,
): Promise<void> {
  const answer = choiceFor(options, refusal);
  if (typeof answer !== "function") {
    sendProblem(res, refusal);
    return;
  }
  await (answer as Answer<Req, Refusal>)(req, res, (error) => next(asError(error)), refusal);
}

/** What Express takes for "go on": as an error it would start the handler that was to be kept from running. */
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
