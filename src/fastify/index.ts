import type { FastifyInstance, FastifyReply, FastifyRequest, RouteGenericInterface } from "fastify";
import { admit } from "../http/admission.ts";
import { type GuardOptions, resolveGuardOptions } from "../http/options.ts";
import { checkPlace } from "../http/place.ts";
import type { RequestSubmission } from "../http/public.ts";
import { headersToRepeat } from "../http/stored-answer.ts";
import type { Lease } from "../lock/lease.ts";
import { NodeExchange, reloadSession } from "../node/exchange.ts";
import { contentAdapter, type RequestContent } from "../node/payload.ts";
import { invalidOption } from "../validation.ts";
import { ReplyWatch, sendAgain } from "./reply-watch.ts";

export type * from "../http/public.ts";

declare module "fastify" {
  interface FastifyRequest {
    /** The lease on the user's lock, where a guard of submit-lock has taken it. */
    submitLease?: Lease;
    /** The submission, where a guard with `idempotency` has found its id and runs the handler. */
    submission?: RequestSubmission;
  }
}

/**
 * The options of {@link submitGuard} for Fastify. A function that answers returns the payload, or
 * calls `reply.send`; the error handler gets the errors that it throws.
 */
export interface SubmitGuardOptions<Req extends FastifyRequest = FastifyRequest>
  extends GuardOptions<Req, [request: Req, reply: FastifyReply]> {}

// biome-ignore-start lint/suspicious/noExplicitAny: whatever the type of the server is.
/** The handler of any route: a method, so that the types of its route and server may be narrower. */
type AnyHandler<Req = FastifyRequest, Reply = FastifyReply> = {
  handle(this: any, request: Req, reply: Reply): unknown;
}["handle"];

/** Protects the handlers of routes. */
export interface SubmitGuard {
  /**
   * Returns a handler for the route that runs yours under the lock. The lock is held until your
   * handler's promise has settled, a stream that it sent has ended, and the response is over.
   *
   * **Write the handler `async`, and await all work it starts.** Without a promise, or with a web
   * stream, only the end of the response shows that a handler is done: if the client leaves before,
   * its user is locked out for up to `maxHoldMs`. Without a promise, the process warning
   * `SUBMIT_LOCK_UNSEEN_HANDLER` says once that a user was locked out for `maxHoldMs`.
   * @throws InvalidOptionError for anything but a handler of up to two parameters.
   */
  protect<
    // HTTP/2 has requests and replies of classes of its own.
    Handler extends AnyHandler<
      FastifyRequest<RouteGenericInterface, any, any>,
      FastifyReply<RouteGenericInterface, any, any, any>
    > = AnyHandler,
  >(handler: Handler): Handler;
}
// biome-ignore-end lint/suspicious/noExplicitAny: whatever the type of the server is.

/**
 * Makes a guard for Fastify 5, which lets one submission of a user through at a time: 409 while
 * another one is processed, 401 without a user, 503 while Redis does not answer. The handler finds
 * the lease at `request.submitLease`.
 *
 * @example
 * ```ts
 * const guard = submitGuard({ lock, userId: (request) => request.user?.id });
 * fastify.post("/orders", guard.protect(handler));
 * ```
 *
 * @throws InvalidOptionError naming the option, what was expected and what came.
 */
export function submitGuard<Req extends FastifyRequest = FastifyRequest>(
  options: SubmitGuardOptions<Req>,
): SubmitGuard {
  const resolved = resolveGuardOptions<Req, [Req, FastifyReply]>(options, {
    // Send bytes, because Fastify would add a charset to the JSON type of a text.
    reject: (_request, reply, { problem: { status, headers, body } }) =>
      reply.code(status).headers(headers).send(Buffer.from(body)),
    replay: (_request, reply, { answer: { status, headers, body } }) => {
      reply.code(status).headers(headersToRepeat(headers, reply.getHeader("vary")));
      return sendAgain(reply, body, headers["content-type"]);
    },
    ...contentAdapter(contentOf),
  });

  let isInPlace = false;

  async function enter(
    app: FastifyInstance,
    request: Req,
    reply: FastifyReply,
    handler: AnyHandler,
  ): Promise<unknown> {
    const admission = await admit(resolved, request, new NodeExchange(request.raw, reply.raw));
    if (admission.kind === "gone") return void reply.hijack();
    const run = () => Reflect.apply(handler, app, [request, reply]);
    // Return `reply`, and Fastify waits: for a promise of `undefined` it sends an empty answer.
    const orReply = (value: unknown) => (value === undefined ? reply : value);
    if (admission.kind === "answer") {
      const { code } = admission;
      if (code === undefined) await reloadSession((request as { session?: unknown }).session);
      else reply.header("Submit-Lock-Code", code);
      return orReply(await admission.answer(request, reply));
    }
    if (admission.kind === "unlocked") {
      if (admission.submission) request.submission = admission.submission;
      return orReply(run());
    }
    const { held, isOwner, wanted } = admission;
    request.submitLease = held.lease;
    if (held.submission !== undefined) request.submission = held.submission;
    if (!isOwner) return orReply(run());
    return await new ReplyWatch(reply, held, wanted).run(run);
  }

  return {
    protect: <Handler extends AnyHandler>(handler: Handler) => {
      if (typeof handler !== "function" || handler.length > 2) {
        const expected = "a route handler (request, reply) without a third parameter";
        throw invalidOption("protect", expected, handler);
      }
      return function protectedHandler(this: FastifyInstance, request: Req, reply: FastifyReply) {
        if (!isInPlace) isInPlace = checkPlace("fastify", request, reply);
        return enter(this, request, reply, handler);
      } as Handler;
    },
  };
}

function contentOf(request: FastifyRequest): RequestContent {
  const { body, originalUrl: url, raw: req } = request;
  const { file, files } = request as unknown as Record<string, unknown>;
  return { req, url, body, hasParser: body !== undefined, files: [file, files] };
}
