import type { IncomingMessage } from "node:http";
import type { Context, Middleware, Next } from "koa";
import { admit } from "../http/admission.ts";
import { type GuardOptions, resolveGuardOptions } from "../http/options.ts";
import { checkPlace } from "../http/place.ts";
import type { RequestSubmission } from "../http/public.ts";
import type { RequestLease } from "../http/request-lease.ts";
import { headersToRepeat } from "../http/stored-answer.ts";
import type { Lease } from "../lock/lease.ts";
import { heldBackMs, isDisconnected, NodeExchange } from "../node/exchange.ts";
import { contentAdapter, type RequestContent } from "../node/payload.ts";
import { isError } from "../validation.ts";
import { type AnyContext, BodyStreams, ContextCapture, repeat } from "./capture.ts";

export type * from "../http/public.ts";

/** The options of {@link submitGuard} for Koa. A function that answers may `ctx.throw`. */
export interface SubmitGuardOptions<Ctx extends AnyContext = Context>
  extends GuardOptions<Ctx, [ctx: Ctx]> {}

/**
 * Makes a guard for Koa 2 and 3, which lets one submission of a user through at a time: 409 while
 * another one is processed, 401 without a user, 503 while Redis does not answer. The lease is at
 * `ctx.state.submitLease`, unless the request runs unlocked: a preflight, `skip`, "proceed". It is
 * held until everything downstream has settled and the response is over.
 *
 * The guard cannot see when a web `ReadableStream` or a `Response` is done: if the client leaves,
 * the lock is kept for `maxHoldMs`. After `ctx.respond = false` it is kept until the response ends.
 *
 * @example
 * ```ts
 * router.post("/orders", submitGuard({ lock, userId: (ctx) => ctx.state.user?.id }), handler);
 * ```
 *
 * @throws InvalidOptionError naming the option, what was expected and what came.
 */
export function submitGuard<Ctx extends AnyContext = Context>(
  options: SubmitGuardOptions<Ctx>,
  // biome-ignore lint/suspicious/noExplicitAny: the body may be anything.
  // biome-ignore lint/complexity/noBannedTypes: this is how Koa says "nothing added to the context".
): Middleware<{ submitLease?: Lease; submission?: RequestSubmission }, {}, any>;
export function submitGuard<Ctx extends AnyContext = Context>(
  options: SubmitGuardOptions<Ctx>,
): Middleware {
  const resolved = resolveGuardOptions<Ctx, [Ctx]>(options, {
    reject: (ctx: AnyContext, { problem: { status, headers, body } }) => {
      ctx.status = status;
      // Set the body before the headers: assigning it sets a `Content-Type`.
      ctx.body = body;
      ctx.set({ ...headers });
    },
    replay: (ctx: AnyContext, { answer }) => {
      repeat(ctx, answer);
      const headers = headersToRepeat(answer.headers, ctx.res.getHeader("vary"));
      const { "content-type": type, ...others } = headers;
      ctx.set(others);
      // If a handler has set the type twice, it is a list, which Koa itself would make one text.
      if (type !== undefined) ctx.res.setHeader("Content-Type", type);
    },
    ...contentAdapter(contentOf),
  });
  let isInPlace = false;

  async function enter(ctx: Context, next: Next): Promise<void> {
    const source = ctx as unknown as Ctx;
    const admission = await admit(resolved, source, new NodeExchange(ctx.req, ctx.res));
    // The request was answered, or its client has left: Koa's own answer would be wrong either way.
    if (admission.kind === "gone") ctx.respond = false;
    else if (admission.kind === "answer") {
      if (admission.code !== undefined) ctx.set("Submit-Lock-Code", admission.code);
      try {
        await admission.answer(source);
      } catch (error) {
        // Koa answers nothing where nothing was thrown.
        throw withCode(error ?? new Error(`a callback threw ${error}`), admission.code);
      }
    } else if (admission.kind === "unlocked") {
      if (admission.submission) ctx.state["submission"] = admission.submission;
      await next();
    } else {
      const { held, wanted } = admission;
      ctx.state["submitLease"] = held.lease;
      if (held.submission !== undefined) ctx.state["submission"] = held.submission;
      const capture = wanted && new ContextCapture(ctx, wanted);
      const bodies = new BodyStreams(ctx.response);
      // Last: if code before it throws, the lease still ends with the response.
      held.begin(capture);
      try {
        await next();
        capture?.settled();
      } catch (error) {
        throw held.failed(error);
      } finally {
        detach(ctx, bodies, held, capture);
      }
    }
  }

  return function submitGuardMiddleware(ctx, next) {
    if (!isInPlace) isInPlace = checkPlace("koa", ctx, next);
    return enter(ctx, next);
  };
}

/** Adds the code to an error's `headers`: for an error, as by `ctx.throw`, Koa sends only these. */
function withCode(error: unknown, code: string | undefined): unknown {
  if (code === undefined || !isError(error) || !Object.isExtensible(error)) return error;
  const { headers } = error as { headers?: object };
  return Object.assign(error, { headers: { ...headers, "Submit-Lock-Code": code } });
}

function contentOf(ctx: AnyContext): RequestContent {
  const request = ctx.request as { body?: unknown; file?: unknown; files?: unknown };
  const req = ctx.req as IncomingMessage & { file?: unknown; files?: unknown };
  const files = [request.file, request.files, ctx["file"], ctx["files"], req.file, req.files];
  return { req, url: ctx.originalUrl, body: request.body, hasParser: "body" in request, files };
}

function detach(
  ctx: AnyContext,
  bodies: BodyStreams,
  held: RequestLease,
  capture?: ContextCapture,
) {
  bodies.whenEnded(isDisconnected(ctx.req, ctx.res), ({ hasErrored, hasFailed }) => {
    // After the client has left, a stream may be torn down with an error that it did not cause.
    if ((hasErrored || hasFailed) && !isDisconnected(ctx.req, ctx.res)) capture?.bodyFailed();
    if (hasFailed) (held.exchange as NodeExchange).close();
    held.detached(() => {
      if (ctx.respond === false) return;
      // On HTTP/2 the response ends when its client leaves, but a web stream's work may go on.
      if (bodies.isUnseen) held.unseen();
      // All streams have ended, and Koa never ends the response to a client that has left.
      else held.end(heldBackMs);
    });
  });
}
