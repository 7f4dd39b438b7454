import type { Context, Middleware, ParameterizedContext } from "koa";
import { admit } from "../http/admission.ts";
import { type GuardOptions, resolveGuardOptions } from "../http/guard-options.ts";
import { offeredTypes } from "../http/page.ts";
import type { Problem } from "../http/problem.ts";
import type {
  Anonymous,
  Contended,
  KeyMissing,
  Mismatch,
  Replay,
  Unavailable,
} from "../http/refusal.ts";
import type { RequestLease, SharedLease, Work } from "../http/request-lease.ts";
import { isDisconnected } from "../http/response-end.ts";
import { headersToRepeat } from "../http/stored-headers.ts";
import type { Submission, Uploads } from "../http/submission.ts";
import type { Lease } from "../lock/lease.ts";
import { repeat } from "./bodies.ts";
import { BodyStreams } from "./body-streams.ts";
import { ContextCapture } from "./capture.ts";
import { whenOutermostSettled } from "./outermost.ts";

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

// biome-ignore lint/suspicious/noExplicitAny: any state and any context of the application fits.
type AnyContext = ParameterizedContext<any, any, any>;

/** Answers a request that was not let through; the handler does not run. It may `ctx.throw`. */
export type Answer<Ctx, Info> = (ctx: Ctx, info: Info) => unknown;

/** The options of {@link submitGuard} for Koa. */
export interface SubmitGuardOptions<Ctx extends AnyContext = Context> extends GuardOptions<Ctx> {
  /** A request without a user: 401, go on without a lock, or answer. @defaultValue "reject" */
  readonly onAnonymous?: "reject" | "proceed" | Answer<Ctx, Anonymous> | undefined;
  /** Another submission of the user is being processed, or whatever else is a 409. @defaultValue 409 */
  readonly onContended?: Answer<Ctx, Contended> | undefined;
  /** Redis does not answer: 503, go on without a lock, or answer. @defaultValue "reject" */
  readonly onUnavailable?: "reject" | "proceed" | Answer<Ctx, Unavailable> | undefined;
  /**
   * The `Idempotency-Key` is missing although it is required, or cannot be read, or `submissionId`
   * returned an unfit id. @defaultValue 400
   */
  readonly onKeyMissing?: Answer<Ctx, KeyMissing> | undefined;
  /** The id of the submission is that of another one, with other content. @defaultValue 422 */
  readonly onMismatch?: Answer<Ctx, Mismatch> | undefined;
  /** The submission was completed before. @defaultValue its answer, with `Idempotent-Replayed: true` */
  readonly onReplay?: Answer<Ctx, Replay> | undefined;
}

/** Options with which every request that is let through has a lease. */
export interface StrictSubmitGuardOptions<Ctx extends AnyContext = Context>
  extends SubmitGuardOptions<Ctx> {
  readonly onAnonymous?: "reject" | Answer<Ctx, Anonymous> | undefined;
  readonly onUnavailable?: "reject" | Answer<Ctx, Unavailable> | undefined;
  readonly skip?: undefined;
}

/**
 * One submission of a user at a time, for Koa 2 and 3: 409 while another one is processed, 401
 * without a user, 503 while Redis does not answer. The lease is at `ctx.state.submitLease`. It is
 * held until everything downstream has settled and the response is over.
 *
 * Work behind `ctx.respond = false` or a web `ReadableStream` cannot be seen: after its client has
 * left, the lock is kept until the response is ended, or for `maxHoldMs`.
 *
 * @throws InvalidOptionError naming the option, what was expected and what came.
 */
export function submitGuard<Ctx extends AnyContext = Context>(
  options: StrictSubmitGuardOptions<Ctx>,
  // biome-ignore lint/suspicious/noExplicitAny: the body may be anything.
  // biome-ignore lint/complexity/noBannedTypes: this is how Koa says "nothing added to the context".
): Middleware<{ submitLease: Lease; submission?: Submission }, {}, any>;
export function submitGuard<Ctx extends AnyContext = Context>(
  options: SubmitGuardOptions<Ctx>,
  // biome-ignore lint/suspicious/noExplicitAny: the body may be anything.
  // biome-ignore lint/complexity/noBannedTypes: this is how Koa says "nothing added to the context".
): Middleware<{ submitLease?: Lease; submission?: Submission }, {}, any>;
export function submitGuard<Ctx extends AnyContext = Context>(
  options: SubmitGuardOptions<Ctx>,
): Middleware {
  const resolved = resolveGuardOptions<Ctx, [Ctx]>(options, {
    reject: (ctx, { problem }) => sendProblem(ctx, problem),
    prefersPage: (ctx) => (ctx as AnyContext).accepts([...offeredTypes]) === "html",
    replay: sendReplay,
    content: (ctx) => {
      const { originalUrl, query, request, req } = ctx as AnyContext;
      const { body } = request as { readonly body?: unknown };
      const places = [request, ctx, req] as readonly Uploads[];
      return {
        originalUrl,
        query,
        body,
        hasParser: "body" in request,
        files: places.flatMap(({ file, files }) => [file, files]),
      };
    },
  });
  return async function submitGuardMiddleware(ctx, next) {
    const source = ctx as unknown as Ctx;
    const admission = await admit(resolved, source, ctx.req, ctx.res);
    switch (admission.kind) {
      case "gone":
        // Somebody has answered, or nobody is there: Koa's own answer would be wrong either way.
        ctx.respond = false;
        return;
      case "answered":
        await admission.answer(source);
        return;
      case "pass":
        await next();
        return;
      case "held": {
        const { held, own } = admission;
        ctx.state["submitLease"] = held.lease;
        if (held.submission !== undefined) ctx.state["submission"] = held.submission;
        const capture = captureFor(ctx, own);
        const work = held.begin();
        const bodies = new BodyStreams(ctx.response);
        try {
          await next();
          capture?.settled();
        } catch (error) {
          held.handlerFailed?.();
          throw error;
        } finally {
          downstreamSettled(ctx, bodies, held, work, capture);
        }
      }
    }
  };
}

/**
 * After everything downstream a body stream may still be producing, and outer middleware may still
 * be at work: it saves a session there, also for a client that has left.
 */
function downstreamSettled(
  ctx: AnyContext,
  bodies: BodyStreams,
  held: SharedLease,
  work: Work,
  capture: ContextCapture | undefined,
): void {
  bodies.whenEnded(isDisconnected(ctx.req, ctx.res), ({ hasErrored, hasFailed }) => {
    // After its client has left, a stream may be torn down with an error that is not its own.
    if ((hasErrored || hasFailed) && !isDisconnected(ctx.req, ctx.res)) capture?.bodyFailed();
    if (hasFailed) held.responseFailed();
    work.detached();
  });
  whenOutermostSettled(ctx, (respond) => {
    // Now all work has been seen, so a client that has left is the end of the response.
    if (respond !== false && !bodies.hasWebStream) held.begin().finished();
  });
}

function captureFor(ctx: AnyContext, own: RequestLease | undefined): ContextCapture | undefined {
  if (own?.wanted === undefined) return undefined;
  const capture = new ContextCapture(ctx, own.wanted);
  own.capturedBy(capture);
  return capture;
}

function sendReplay(ctx: AnyContext, { answer }: Replay): void {
  // The body first: assigning it sets a type of its own.
  repeat(ctx, answer);
  for (const [name, value] of headersToRepeat(ctx.res, answer.headers))
    ctx.set(name, value as string);
  ctx.set("Idempotent-Replayed", "true");
}

function sendProblem(ctx: AnyContext, { status, headers, body }: Problem): void {
  ctx.status = status;
  // The body first: assigning it sets a type of its own.
  ctx.body = body;
  ctx.set({ ...headers });
}
