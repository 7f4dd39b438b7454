import type { Context, Middleware, ParameterizedContext } from "koa";
import { admit } from "../http/admission.ts";
import { type GuardOptions, resolveGuardOptions } from "../http/guard-options.ts";
import { problemFor, type Refusal } from "../http/problem.ts";
import type { SharedLease, Work } from "../http/request-lease.ts";
import { isDisconnected } from "../http/response-end.ts";
import type { Lease } from "../lock/lease.ts";
import { BodyStreams } from "./body-streams.ts";
import { whenOutermostSettled } from "./outermost.ts";

export type { LockLike, NoUser } from "../http/guard-options.ts";

// biome-ignore lint/suspicious/noExplicitAny: any state and any context of the application fits.
type AnyContext = ParameterizedContext<any, any, any>;

/** Answers a request that was not let through; the handler does not run. It may `ctx.throw`. */
export type Answer<Ctx, Info> = (ctx: Ctx, info: Info) => unknown;

/** The options of {@link submitGuard} for Koa. */
export interface SubmitGuardOptions<Ctx extends AnyContext = Context> extends GuardOptions<Ctx> {
  /** A request without a user: 401, go on without a lock, or answer. @defaultValue "reject" */
  readonly onAnonymous?: "reject" | "proceed" | Answer<Ctx, { reason: "anonymous" }> | undefined;
  /** Another submission of the user is being processed. @defaultValue 409 */
  readonly onContended?: Answer<Ctx, { reason: "contended"; expiresInMs: number }> | undefined;
  /** Redis does not answer: 503, go on without a lock, or answer. @defaultValue "reject" */
  readonly onUnavailable?:
    | "reject"
    | "proceed"
    | Answer<Ctx, { reason: "unavailable"; cause: Error }>
    | undefined;
}

/** Options with which every request that is let through has a lease. */
export interface StrictSubmitGuardOptions<Ctx extends AnyContext = Context>
  extends SubmitGuardOptions<Ctx> {
  readonly onAnonymous?: "reject" | Answer<Ctx, { reason: "anonymous" }> | undefined;
  readonly onUnavailable?:
    | "reject"
    | Answer<Ctx, { reason: "unavailable"; cause: Error }>
    | undefined;
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
): Middleware<{ submitLease: Lease }, {}, any>;
export function submitGuard<Ctx extends AnyContext = Context>(
  options: SubmitGuardOptions<Ctx>,
  // biome-ignore lint/suspicious/noExplicitAny: the body may be anything.
  // biome-ignore lint/complexity/noBannedTypes: this is how Koa says "nothing added to the context".
): Middleware<{ submitLease?: Lease }, {}, any>;
export function submitGuard<Ctx extends AnyContext = Context>(
  options: SubmitGuardOptions<Ctx>,
): Middleware {
  const resolved = resolveGuardOptions<Ctx, [Ctx]>(options, reject);
  return async function submitGuardMiddleware(ctx, next) {
    const source = ctx as unknown as Ctx;
    const admission = await admit(resolved, source, ctx.req, ctx.res);
    switch (admission.kind) {
      case "gone":
        // Somebody has answered, or nobody is there: Koa's own answer would be wrong either way.
        ctx.respond = false;
        return;
      case "refused":
        await admission.answer(source);
        return;
      case "pass":
        await next();
        return;
      case "held": {
        const { held } = admission;
        ctx.state["submitLease"] = held.lease;
        const work = held.begin();
        const bodies = new BodyStreams(ctx.response);
        try {
          await next();
        } finally {
          downstreamSettled(ctx, bodies, held, work);
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
): void {
  bodies.whenEnded(isDisconnected(ctx.req, ctx.res), (hasFailed) => {
    if (hasFailed) held.responseFailed();
    work.detached();
  });
  whenOutermostSettled(ctx, (respond) => {
    // Now all work has been seen, so a client that has left is the end of the response.
    if (respond !== false && !bodies.hasWebStream) held.begin().finished();
  });
}

function reject(ctx: AnyContext, refusal: Refusal): void {
  const { status, headers, body } = problemFor(refusal);
  ctx.status = status;
  // The body first: assigning it sets a type of its own.
  ctx.body = body;
  ctx.set({ ...headers });
}
