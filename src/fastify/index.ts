import { isUtf8 } from "node:buffer";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { InvalidOptionError } from "../errors.ts";
import { admit } from "../http/admission.ts";
import { type GuardOptions, resolveGuardOptions } from "../http/options.ts";
import type { RequestSubmission } from "../http/public.ts";
import { prefersHtml } from "../http/refusals.ts";
import { type RequestLease, warnIfHeldToMaxHold } from "../http/request-lease.ts";
import { headersToRepeat } from "../http/stored-answer.ts";
import type { Lease } from "../lock/lease.ts";
import { NodeExchange } from "../node/exchange.ts";
import { payloadOf } from "../node/payload.ts";
import { invalidOption } from "../validation.ts";
import { ReplyWatch } from "./reply-watch.ts";

export type * from "../http/public.ts";

declare module "fastify" {
  interface FastifyRequest {
    /** The lease on the user's lock, where a guard of submit-lock has taken it. */
    submitLease?: Lease;
    /** The submission of the request, where a guard with `idempotency` has found its id. */
    submission?: RequestSubmission;
  }
}

/**
 * Answers a request instead of its handler, which does not run: returns the payload, or calls
 * `reply.send`. What it throws goes to the error handler.
 */
export type Answer<Info, Req extends FastifyRequest = FastifyRequest> = (
  request: Req,
  reply: FastifyReply,
  info: Info,
) => unknown;

/** The options of {@link submitGuard} for Fastify. */
export interface SubmitGuardOptions<Req extends FastifyRequest = FastifyRequest>
  extends GuardOptions<Req, [request: Req, reply: FastifyReply]> {}

/** The handler of any route: a method, so that the types of its route and server may be narrower. */
type AnyHandler = {
  // biome-ignore lint/suspicious/noExplicitAny: whatever the type of the server is.
  handle(this: any, request: FastifyRequest, reply: FastifyReply): unknown;
}["handle"];

/** Protects the handlers of routes. */
export interface SubmitGuard {
  /**
   * The handler under the lock, to be given to a route in its place. The lock is held until the
   * promise of the handler has settled, a stream that it sent has ended, and the response is over.
   *
   * **Write the handler `async`, and await all work it starts.** Without a promise, only the end of
   * the response shows that a handler is done: if the client leaves before, its user is locked out
   * for up to `maxHoldMs`. The process warning `SUBMIT_LOCK_UNSEEN_HANDLER` says once that it
   * happened.
   *
   * @throws InvalidOptionError for anything but a handler.
   */
  protect<Handler extends AnyHandler>(handler: Handler): Handler;
}

/**
 * One submission of a user at a time, for Fastify 5: 409 while another one is processed, 401 without
 * a user, 503 while Redis does not answer. The lease is at `request.submitLease`.
 *
 * @throws InvalidOptionError naming the option, what was expected and what came.
 */
export function submitGuard<Req extends FastifyRequest = FastifyRequest>(
  options: SubmitGuardOptions<Req>,
): SubmitGuard {
  const resolved = resolveGuardOptions<Req, [Req, FastifyReply]>(options, {
    // Bytes, because Fastify would add a charset to the JSON type of a text.
    reject: (_request, reply, { problem: { status, headers, body } }) =>
      reply.code(status).headers(headers).send(Buffer.from(body)),
    prefersPage: ({ headers }) => prefersHtml(headers.accept),
    replay: (_request, reply, { answer: { status, headers, body } }) => {
      reply.code(status).headers(headersToRepeat(headers, reply.getHeader("vary")));
      // Bytes without a type would get one, and a body without bytes had none.
      if (body === undefined || body.length === 0) return reply.send();
      const bytes = Buffer.from(body.buffer, body.byteOffset, body.byteLength);
      if (!isUtf8(bytes)) return reply.send(bytes);
      // Once: a hook's serializer would change the text, and Fastify without one the type of JSON.
      reply.serializer((text: string) => {
        reply.serializer(null as never);
        return text;
      });
      return reply.send(bytes.toString());
    },
    path: ({ originalUrl }) => originalUrl.replace(/\?.*/s, ""),
    payload: (request) => {
      const { body, originalUrl, raw } = request;
      const { file, files } = request as unknown as Record<string, unknown>;
      const query = originalUrl.includes("?") ? request.query : {};
      return payloadOf(raw, { query, body, hasParser: body !== undefined, files: [file, files] });
    },
  });

  async function enter(
    app: FastifyInstance,
    request: Req,
    reply: FastifyReply,
    handler: AnyHandler,
  ): Promise<unknown> {
    const exchange = new NodeExchange(request.raw, reply.raw);
    const admission = await admit(resolved, request, exchange);
    if (admission.kind === "gone") return void reply.hijack();
    const run = () => Reflect.apply(handler, app, [request, reply]);
    // Fastify sends an empty answer for a promise of `undefined`, and waits for `reply`.
    const orReply = (value: unknown) => (value === undefined ? reply : value);
    if (admission.kind === "answered") return orReply(await admission.answer(request, reply));
    const { held, wanted } = admission;
    if (held === undefined) return orReply(run());
    request.submitLease = held.lease as Lease;
    if (held.submission !== undefined) request.submission = held.submission;
    // The guard around this one watches the reply.
    if (held.exchange !== exchange) return orReply(run());
    const watch = new ReplyWatch(reply, held, wanted, exchange);
    return await runHeld(run, held, watch, reply);
  }

  return {
    protect: <Handler extends AnyHandler>(handler: Handler) => {
      if (typeof handler !== "function") throw invalidOption("protect", "a route handler", handler);
      if (handler.length > 2) {
        throw new InvalidOptionError(
          "protect: expected a route handler of up to two parameters (request, reply), got one with more, such as a hook with done",
        );
      }
      return function protectedHandler(this: FastifyInstance, request: Req, reply: FastifyReply) {
        return enter(this, request, reply, handler);
      } as Handler;
    },
  };
}

/** Runs a handler, and reports its end to the lease as far as the end can be seen. */
async function runHeld(
  run: () => unknown,
  held: RequestLease,
  watch: ReplyWatch,
  reply: FastifyReply,
): Promise<unknown> {
  held.begin();
  let isPromise = false;
  try {
    const returned = run();
    // `reply` has a `then`, but resolves when the client leaves as well.
    isPromise = returned !== reply && typeof (returned as Promise<unknown>)?.then === "function";
    const value = isPromise ? await returned : returned;
    const isLater = isPromise ? watch.isAwaited && !watch.hasAnswered : returned === undefined;
    if (returned === reply || isLater) {
      held.detached(watch.isUnseen ? undefined : warnIfHeldToMaxHold);
      return reply;
    }
    const hasSent = watch.hasSaid;
    watch.says(value);
    if (watch.isUnseen) held.detached();
    else held.finished();
    // While hooks hold back what was sent, Fastify would send `undefined` as well.
    return hasSent && value === undefined ? reply : value;
  } catch (error) {
    watch.failed();
    if (isPromise) held.finished();
    // A handler without a promise may have started work before it threw.
    else held.detached();
    throw error;
  }
}
