import type { IncomingMessage, ServerResponse } from "node:http";
import type { NextFunction, Request, RequestHandler, Response } from "express";
import { AnsweredTwiceError, InvalidOptionError } from "../errors.ts";
import { admit } from "../http/admission.ts";
import { type GuardOptions, resolveGuardOptions } from "../http/options.ts";
import { checkPlace } from "../http/place.ts";
import type { RequestSubmission } from "../http/public.ts";
import { type RequestLease, warnIfHeldToMaxHold } from "../http/request-lease.ts";
import { headersToRepeat } from "../http/stored-answer.ts";
import type { Lease } from "../lock/lease.ts";
import { ResponseCapture } from "../node/capture.ts";
import { heldBackMs, isDisconnected, NodeExchange, reloadSession } from "../node/exchange.ts";
import { contentAdapter, type RequestContent } from "../node/payload.ts";
import { setTimeout } from "../time.ts";
import { invalidOption, textOfThrown, warnOnce } from "../validation.ts";

export type * from "../http/public.ts";

declare global {
  namespace Express {
    interface Request {
      /** The lease on the user's lock, where a guard of submit-lock has taken it. */
      submitLease?: Lease;
      /** The submission, where a guard with `idempotency` has found its id and runs the handler. */
      submission?: RequestSubmission;
    }
  }
}

/**
 * The options of `submitGuard` for Express. The `next` of a function that answers takes an error and
 * nothing else: `next()` never runs the handler.
 */
export interface SubmitGuardOptions<Req extends IncomingMessage = Request>
  extends GuardOptions<Req, [req: Req, res: Response, next: (error: unknown) => void]> {}

type AnyHandler = (
  // biome-ignore-start lint/suspicious/noExplicitAny: whatever the types of the route are.
  req: Request<any, any, any, any, any>,
  res: Response<any, any>,
  // biome-ignore-end lint/suspicious/noExplicitAny: whatever the types of the route are.
  next: NextFunction,
) => unknown;

/** A handler under the lock, with the types of its route; without parameters it fits any route. */
type ProtectedHandler<Handler extends AnyHandler> =
  Parameters<Handler> extends []
    ? (req: IncomingMessage, res: ServerResponse, next: (error?: unknown) => void) => void
    : Handler extends RequestHandler<
          infer Params,
          infer ResBody,
          infer ReqBody,
          infer Query,
          infer Locals
        >
      ? RequestHandler<Params, ResBody, ReqBody, Query, Locals>
      : Handler;

/** Middleware that lets one submission of a user through at a time. */
export interface SubmitGuard {
  /**
   * Holds the lock until the response has ended. Middleware cannot see when a handler is done:
   * after a client has left, the lock is kept until the handler ends the response, or for
   * `maxHoldMs`. Prefer {@link SubmitGuard.protect}.
   */
  (req: IncomingMessage, res: ServerResponse, next: (error?: unknown) => void): void;
  /**
   * Returns a handler that runs yours under the lock, to be mounted in place of yours. The lock is
   * held until the promise of your handler has settled and the response is over. A rejection goes
   * to the error handler, on Express 4 too.
   *
   * **Write the handler `async`, and await all work it starts**: `await pipeline(source, res)`, not
   * `source.pipe(res)` or a callback. Only its promise shows when a handler is done. Without a
   * promise, the lock is held as by the plain guard: if the client leaves before the response has
   * ended, its user is locked out for up to `maxHoldMs`, 60 s by default. The process warning
   * `SUBMIT_LOCK_UNSEEN_HANDLER` says once that a user was locked out for `maxHoldMs`.
   * @throws InvalidOptionError for anything but a handler of up to three parameters.
   */
  protect<Handler extends AnyHandler>(handler: Handler): ProtectedHandler<Handler>;
}

type Next = (error?: unknown) => void;
type Work = (forward: Next) => unknown;

/**
 * Makes a guard for Express 4 and 5, which lets one submission of a user through at a time: 409
 * while another one is processed, 401 without a user, 503 while Redis does not answer. The handler
 * finds the lease at `req.submitLease`.
 *
 * @example
 * ```ts
 * const guard = submitGuard({ lock, userId: (req) => req.user?.id, idempotency: {} });
 * app.post("/orders", guard.protect(placeOrder));
 * ```
 *
 * @throws InvalidOptionError naming the option, what was expected and what came.
 */
export function submitGuard<Req extends IncomingMessage = Request>(
  options: SubmitGuardOptions<Req>,
): SubmitGuard {
  const resolved = resolveGuardOptions(options, {
    reject: (_req, res, _next, { problem: { status, headers, body } }) =>
      sendAnswer(res, status, { ...headers, "Content-Length": Buffer.byteLength(body) }, body),
    replay: (_req, res, _next, { answer: { status, headers, body } }) => {
      const repeated = headersToRepeat(headers, res.getHeader("vary"));
      const hasLength = body !== undefined && status !== 204 && status !== 304;
      const length = hasLength && { "Content-Length": body.length };
      return sendAnswer(res, status, { ...repeated, ...length }, body);
    },
    ...contentAdapter(contentOf),
  });

  let isInPlace = false;

  /** Never rejects: `next` gets errors. */
  async function enter(
    req: IncomingMessage,
    res: ServerResponse,
    next: Next,
    handler: Work,
  ): Promise<void> {
    try {
      const admission = await admit(resolved, req as Req, new NodeExchange(req, res));
      if (admission.kind === "gone") return;
      if (admission.kind === "answer") {
        const { code } = admission;
        if (code === undefined) await reloadSession((req as { session?: unknown }).session);
        else if (!res.headersSent) res.setHeader("Submit-Lock-Code", code);
        const value = await admission.answer(req as Req, res as Response, (error) => {
          const why =
            "onContended, or another function that answers for the guard, called next() without an error. Send an answer, or call next(error)";
          next(goesOn(error) ? new AnsweredTwiceError(why) : error);
        });
        // Later, because the function may have begun to answer.
        const look = () => !res.headersSent && !res.writableEnded && warnIfReturned(value);
        if (value !== undefined) setTimeout(look, heldBackMs).unref();
        return;
      }
      if (admission.kind === "unlocked") {
        if (admission.submission) (req as Request).submission = admission.submission;
        await handler(next);
        return;
      }
      const { held, wanted } = admission;
      (req as Request).submitLease = held.lease;
      if (held.submission !== undefined) (req as Request).submission = held.submission;
      held.begin(wanted && new ExpressCapture(res, wanted));
      await run(handler, next, held, res);
    } catch (error) {
      passOn(error, next);
    }
  }

  function submitGuardMiddleware(req: IncomingMessage, res: ServerResponse, next: Next): void {
    if (!isInPlace) isInPlace = checkPlace("express", req, res, next);
    void enter(req, res, next, (forward) => forward());
  }

  function protect(handler: RequestHandler): RequestHandler {
    if (typeof handler !== "function" || handler.length > 3) {
      throw invalidOption("protect", "a request handler of up to three parameters", handler);
    }
    if ("protect" in handler) {
      throw new InvalidOptionError(
        "protect: expected a request handler, got a guard: mount the guard itself, or write guard.protect(handler)",
      );
    }
    return function protectedHandler(this: unknown, req, res, next) {
      if (!isInPlace) isInPlace = checkPlace("express", req, res, next);
      return enter(req, res, next, (forward) => Reflect.apply(handler, this, [req, res, forward]));
    };
  }

  return Object.assign(submitGuardMiddleware, { protect: protect as SubmitGuard["protect"] });
}

/** Captures a handler's answer, and sees whether the handler succeeds after a time-out answered. */
class ExpressCapture extends ResponseCapture {
  #isLate = false;
  /** The status that the handler has set after the end of the response. */
  #status: number | undefined;
  #hasAnswered = false;
  #hasFailed = false;

  /** After a 5xx or 408, such as a time-out's, notes the handler's own status and answer. */
  responseEnded(): void {
    const res = this.res as ServerResponse & Record<string, unknown>;
    let { statusCode } = res;
    // Over without a call of `end`: the answer is the handler's, not a time-out's.
    if (this.#isLate || !res.writableEnded || (statusCode < 500 && statusCode !== 408)) return;
    this.#isLate = true;
    Object.defineProperty(res, "statusCode", {
      configurable: true,
      get: () => statusCode,
      set: (status: number) => {
        statusCode = status;
        this.#status = status;
      },
    });
    for (const name of ["end", "json", "redirect", "send", "writeHead"]) {
      const original = res[name];
      if (typeof original !== "function") continue;
      res[name] = (...args: unknown[]) => {
        const status = name === "writeHead" ? Number(args[0]) : (this.#status ?? 200);
        if (status < 400 && !this.#hasFailed) this.#hasAnswered = true;
        return Reflect.apply(original, res, args);
      };
    }
  }

  override failed(): void {
    this.#hasFailed = true;
    super.failed();
  }

  get isDone(): boolean {
    return this.#hasAnswered || (!this.#hasFailed && Number(this.#status) < 400);
  }
}

function passOn(error: unknown, next: Next): void {
  const text = `the handler or a callback threw ${textOfThrown(error)} instead of an Error`;
  next(goesOn(error) ? new Error(text) : error);
}

async function run(
  handler: Work,
  next: Next,
  held: RequestLease,
  res: ServerResponse,
): Promise<void> {
  let passedOn = false;
  let isPromise = false;
  let value: unknown;
  // After next(), later handlers may still be at work: the lock is held until the response ends.
  // After next(error), the error handler answers, so that answer is not kept.
  const forward: Next = (error) => {
    if (goesOn(error)) passedOn = true;
    next(goesOn(error) ? error : held.failed(error));
  };
  try {
    const returned = handler(forward) as PromiseLike<unknown> | undefined;
    isPromise = typeof returned?.then === "function";
    if (isPromise) value = await returned;
  } catch (error) {
    const own = held.failed(error);
    try {
      // Call `next` first, so that the error handler answers before `finished` ends the lease:
      // waiting repeats get that answer.
      passOn(own, next);
    } finally {
      if (isPromise) held.finished();
      // A handler without a promise may have started work before it threw.
      else held.detached();
    }
    return;
  }
  const { clientLeft, isAnswered } = held.exchange;
  const hasAnswered = res.headersSent || isAnswered;
  if (passedOn) held.detached();
  else if (isPromise && hasAnswered) held.finished();
  else if (isPromise && (clientLeft || res.destroyed || isDisconnected(res.req, res))) {
    // The response cannot be sent, as after a failed pipeline, even before its `close`.
    // End the lease later: `res.render` answers after a tick, and a repeat must find that answer.
    held.detached(() => setTimeout(() => held.abandoned(), heldBackMs).unref());
  } else {
    // No promise, or it resolved without an answer: a callback may still work, so keep the lock.
    held.detached(warnIfHeldToMaxHold);
    warnIfReturned(value);
  }
}

function warnIfReturned(value: unknown): void {
  // Do not warn of a value that has listeners: a stream, for example, may send the answer.
  if (value === undefined || typeof Object(value).on === "function") return;
  warnOnce(
    "SUBMIT_LOCK_RETURNED_VALUE",
    "a handler, or a function that answers for the guard, returned a value and answered nothing. Express sends no returned value, so the client waits, and behind a handler its user is locked out for maxHoldMs. Send the value, such as by res.json(value)",
  );
}

/** Sends an answer of the guard. Headers that were set before stay, such as those of CORS. */
function sendAnswer(
  res: ServerResponse,
  status: number,
  headers: Readonly<Record<string, number | string | string[]>>,
  body: string | Uint8Array | undefined,
): void {
  if (res.headersSent) {
    // Half an answer was sent already: a broken connection cannot be mistaken for success.
    res.destroy();
    return;
  }
  res.statusCode = status;
  for (const [name, value] of Object.entries(headers)) res.setHeader(name, value);
  // Node garbles a file name beyond ASCII if `end` gets the body.
  if (body !== undefined && /[^ -~]/.test(`${headers["content-disposition"] ?? ""}`)) {
    res.write(body);
    res.end();
  } else res.end(body);
}

function contentOf(req: IncomingMessage): RequestContent {
  const { body, file, files, originalUrl } = req as IncomingMessage & Record<string, unknown>;
  const url = String(originalUrl ?? req.url ?? "");
  return { req, url, body, hasParser: "body" in req, files: [file, files] };
}

/** Whether Express takes an "error" for "go on", and would run the handler of a refused request. */
function goesOn(error: unknown): boolean {
  return !error || error === "route" || error === "router";
}
