import type { Context, Middleware, ParameterizedContext } from "koa";
import { admit } from "../http/admission.ts";
import type { Work } from "../http/completion.ts";
import { checkGuardOptions, choiceFor, type GuardOptions } from "../http/guard-options.ts";
import { problemFor, type Refusal } from "../http/problem.ts";
import { isDisconnected } from "../http/response-end.ts";
import type { Lease } from "../lock/lease.ts";
import { BodyStreams } from "./body-streams.ts";

export type { LockLike, NoUser } from "../http/guard-options.ts";

// biome-ignore lint/suspicious/noExplicitAny: any state and any context of the application fits.
type AnyContext = ParameterizedContext<any, any, any>;

/** Answers a request that was not let through; the handler does not run. It may `ctx.throw`. */
export type Answer<Ctx, Info> = (ctx: Ctx, info: Info) => unknown;

/** The options of {@link submitGuard} for Koa. */
export interface SubmitGuardOptions<Ctx extends AnyContext = Context> extends GuardOptions<Ctx> {
  /** A request without a user: 401, go on without a lock, or answer. @defaultValue "reject" */
  readonly onAnonymous?: "reject" | "proceed" | Answer<Ctx, { reason: "anonymous" }> | undefined;
  /** Another submission of the user is under way. @defaultValue 409 */
  readonly onContended?: Answer<Ctx, { reason: "contended"; expiresInMs: number }> | undefined;
  /** Redis is away: 503, go on without a lock, or answer. @defaultValue "reject" */
  readonly onUnavailable?:
    | "reject"
    | "proceed"
    | Answer<Ctx, { reason: "unavailable"; cause: Error }>
    | undefined;
}

/** Options with which no request comes through without a lease. */
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
 * One submission of a user at a time, for Koa 2 and 3: 409 while another one is under way, 401
 * without a user, 503 while Redis is away. The lease is at `ctx.state.submitLease`, and is held
 * until everything downstream has settled and the response is over.
 *
 * Not seen are the work behind `ctx.respond = false` and behind a web `ReadableStream`: there, after
 * a client has left, the lock is kept until the response is ended, or for `maxHoldMs`.
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
  checkGuardOptions(options);
  return async function submitGuardMiddleware(ctx, next) {
    const admission = await admit(options, ctx as unknown as Ctx, ctx.req, ctx.res);
    switch (admission.kind) {
      case "gone":
        // Answered, or nobody is there: what Koa would send by itself is neither.
        ctx.respond = false;
        return;
      case "refused":
        await refuse(options, admission.refusal, ctx);
        return;
      case "pass":
        await next();
        return;
      case "held": {
        const { lease, begin } = admission.holding;
        ctx.state["submitLease"] = lease;
        const work = begin();
        const bodies = new BodyStreams(ctx.response);
        try {
          await next();
        } finally {
          settle(ctx, bodies, begin, work);
        }
      }
    }
  };
}

/**
 * What is downstream has settled, but a body that is still being made goes on working, and so may
 * the middleware outside: a session is saved there, also when nobody waits for the answer any more.
 */
function settle(ctx: AnyContext, bodies: BodyStreams, begin: () => Work, work: Work): void {
  bodies.whenMade(isDisconnected(ctx.req, ctx.res), () => work.unseen());
  whenOutermostSettled(ctx, (respond) => {
    // From now on nothing is unseen, and a client that has left is the end of the response.
    if (respond !== false && !bodies.isUnseen) begin().done();
  });
}

/** Registered, so that two copies of the package find each other. */
const settlingOf: unique symbol = Symbol.for("submit-lock.respond");

interface Settling {
  respond: unknown;
  readonly onerror: Context["onerror"];
  readonly listeners: ((respond: unknown) => void)[];
}

/**
 * The same functions for all contexts, which so keep one shape. A closure for each would even keep
 * every request in the memory until the next full collection, on Node 20.
 */
const watchedRespond: PropertyDescriptor & ThisType<{ [settlingOf]: Settling }> = {
  configurable: true,
  enumerable: true,
  get() {
    const { respond, listeners } = this[settlingOf];
    for (const settled of listeners) settled(respond);
    return respond;
  },
  set(value: unknown) {
    this[settlingOf].respond = value;
  },
};

function watchedOnerror(this: AnyContext & { [settlingOf]: Settling }, error: Error): void {
  const settling = this[settlingOf];
  settling.onerror.call(this, error);
  // Koa calls it without an error, too, whenever a response is over.
  if (error) for (const settled of settling.listeners) settled(settling.respond);
}

/** Koa looks at `ctx.respond`, or calls `ctx.onerror`, when the outermost middleware has settled. */
function whenOutermostSettled(ctx: AnyContext, settled: (respond: unknown) => void): void {
  const watched = ctx as AnyContext & { [settlingOf]?: Settling };
  // Another guard further in may be waiting for the same.
  if (watched[settlingOf] !== undefined) {
    watched[settlingOf].listeners.push(settled);
    return;
  }
  const { respond, onerror } = ctx;
  watched[settlingOf] = { respond, onerror, listeners: [settled] };
  Object.defineProperty(ctx, "respond", watchedRespond);
  ctx.onerror = watchedOnerror;
}

async function refuse(
  options: SubmitGuardOptions<never>,
  refusal: Refusal,
  ctx: AnyContext,
): Promise<void> {
  const answer = choiceFor(options, refusal);
  if (typeof answer === "function") {
    await (answer as Answer<AnyContext, Refusal>)(ctx, refusal);
    return;
  }
  const { status, headers, body } = problemFor(refusal);
  ctx.status = status;
  // The body first: assigning it sets a type of its own.
  ctx.body = body;
  ctx.set({ ...headers });
}
