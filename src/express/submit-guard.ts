import type { IncomingMessage, ServerResponse } from "node:http";
import type { NextFunction, Request, RequestHandler, Response } from "express";
import type { GuardOptions } from "../http/guard-options.ts";
import type {
  Anonymous,
  Contended,
  KeyMissing,
  Mismatch,
  Replay,
  Unavailable,
} from "../http/refusal.ts";

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

/** The options of `submitGuard` for Express. */
export interface SubmitGuardOptions<Req extends IncomingMessage = Request>
  extends GuardOptions<Req> {
  /** A request without a user: 401, go on without a lock, or answer. @defaultValue "reject" */
  readonly onAnonymous?: "reject" | "proceed" | Answer<Req, Anonymous> | undefined;
  /** Another submission of the user is being processed, or whatever else is a 409. @defaultValue 409 */
  readonly onContended?: Answer<Req, Contended> | undefined;
  /** Redis does not answer: 503, go on without a lock, or answer. @defaultValue "reject" */
  readonly onUnavailable?: "reject" | "proceed" | Answer<Req, Unavailable> | undefined;
  /**
   * The `Idempotency-Key` is missing although it is required, or cannot be read, or `submissionId`
   * returned an unfit id. @defaultValue 400
   */
  readonly onKeyMissing?: Answer<Req, KeyMissing> | undefined;
  /** The id of the submission is that of another one, with other content. @defaultValue 422 */
  readonly onMismatch?: Answer<Req, Mismatch> | undefined;
  /** The submission was completed before. @defaultValue its answer, with `Idempotent-Replayed: true` */
  readonly onReplay?: Answer<Req, Replay> | undefined;
}

/** A request handler of any route. */
type AnyHandler = (
  // biome-ignore-start lint/suspicious/noExplicitAny: whatever the types of the route are.
  req: Request<any, any, any, any, any>,
  res: Response<any, any>,
  // biome-ignore-end lint/suspicious/noExplicitAny: whatever the types of the route are.
  next: NextFunction,
) => unknown;

/**
 * A handler of `(req, res, next)` with the types of the given one's route. A handler without
 * parameters tells nothing of its route, so what it becomes fits any.
 */
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
   * The handler under the lock, to be mounted in its place. The lock is held until the promise of
   * the handler has settled and the response is over. Its rejections go to the error handler, on
   * Express 4 too.
   *
   * **Write the handler `async`, and await what it starts**: `await pipeline(source, res)` instead
   * of `source.pipe(res)` or a callback. The promise is all that shows when a handler is done. One
   * that returns none is seen no better than by a plain guard: if its client leaves before the
   * response has ended, its user is locked out for up to `maxHoldMs`, 60 s by default. The process
   * warning `SUBMIT_LOCK_UNSEEN_HANDLER` says once that this has happened.
   *
   * @throws InvalidOptionError for anything but a handler of up to three parameters.
   */
  protect<Handler extends AnyHandler>(handler: Handler): ProtectedHandler<Handler>;
}
