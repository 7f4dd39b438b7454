import { finished } from "node:stream";
import type { FastifyReply, FastifyRequest } from "fastify";
import type { WantedAnswer } from "../http/options.ts";
import type { Capture, RequestLease } from "../http/request-lease.ts";
import { listedHeaders } from "../http/stored-answer.ts";
import type { AnswerToStore } from "../lock/record.ts";
import { isNodeStream, isOfWeb, type NodeStream, ResponseCapture } from "../node/capture.ts";
import type { NodeExchange } from "../node/exchange.ts";

/** What Fastify reads of a route for each reply. */
interface RouteContext {
  preSerialization: unknown;
  onSend: ((...args: [FastifyRequest, FastifyReply, unknown, () => void]) => void)[] | null;
}

const watches = new WeakMap<FastifyReply, ReplyWatch>();

function seeSerialised(...[, reply, body, done]: [unknown, FastifyReply, unknown, () => void]) {
  watches.get(reply)?.serialised(body);
  done();
}

/**
 * Makes {@link seeSerialised} the first `onSend` hook of the route. Fastify has no public way to it:
 * hooks are added before it is ready, those of a route run last, and `reply.serializer` replaces a
 * serializer that cannot be read. Without a context of this shape, no body is kept.
 */
function hookInto(request: FastifyRequest): void {
  for (const symbol of Object.getOwnPropertySymbols(request)) {
    const context: RouteContext | undefined = Object(Reflect.get(request, symbol));
    if (context === undefined || !("onSend" in context && "preSerialization" in context)) continue;
    const { onSend } = context;
    if (!onSend?.includes(seeSerialised)) context.onSend = [seeSerialised, ...(onSend ?? [])];
  }
}

/**
 * Sees the first payload that a handler returns or sends, and captures its text or bytes behind the
 * serialiser and before `onSend`. Sees also when a stream that was sent has ended. The raw response
 * counts for a handler that has sent nothing, behind `reply.hijack()`.
 */
export class ReplyWatch implements Capture {
  readonly #reply: FastifyReply;
  readonly #held: RequestLease;
  readonly #exchange: NodeExchange;
  readonly #wanted: WantedAnswer | undefined;
  readonly #raw: ResponseCapture | undefined;
  #answer: AnswerToStore | undefined;
  #sends = 0;
  #hasFailed = false;
  /** The handler has sent or returned a payload. */
  hasSaid = false;
  /** The handler waits for the response: `await reply`, or `return reply` of an async function. */
  isAwaited = false;
  /** A `ReadableStream` or a `Response` was sent: the end of its work cannot be seen. */
  isUnseen = false;

  constructor(
    reply: FastifyReply,
    held: RequestLease,
    wanted: WantedAnswer | undefined,
    exchange: NodeExchange,
  ) {
    this.#exchange = exchange;
    this.#reply = reply;
    this.#held = held;
    this.#wanted = wanted;
    if (wanted !== undefined) {
      this.#raw = new ResponseCapture(reply.raw, wanted);
      held.capture = this;
      watches.set(reply, this);
    }
    const { send, then } = reply;
    reply.send = (payload) => {
      this.says(payload);
      this.#sends++;
      // At each call, because `reply.callNotFound` changes the route.
      if (wanted !== undefined) hookInto(reply.request);
      return Reflect.apply(send, reply, [payload]);
    };
    // biome-ignore lint/suspicious/noThenProperty: Fastify's replies have one.
    reply.then = (fulfilled, rejected) => {
      this.isAwaited = true;
      Reflect.apply(then, reply, [fulfilled, rejected]);
    };
  }

  /** Whether the handler has nothing more to send. */
  get hasAnswered(): boolean {
    return this.hasSaid || this.#reply.raw.writableEnded;
  }

  /** Only the first payload counts: Fastify ignores those behind it. */
  says(payload: unknown): void {
    if (payload instanceof Error && !this.hasSaid) this.failed();
    if (this.hasSaid || this.#reply.sent || this.#hasFailed) return;
    this.hasSaid = true;
    this.#raw?.discard();
    if (isNodeStream(payload)) this.#watch(payload);
    else if (isOfWeb(payload)) this.isUnseen = true;
    // For a client that has left, Fastify sends no empty answer.
    else if (payload === undefined) this.serialised(payload);
    else this.#exchange.willEnd();
  }

  /** Only for the first payload: behind it comes the error handler's. */
  serialised(body: unknown): void {
    if (this.#wanted === undefined || this.#sends > 1 || this.#hasFailed) return;
    const { maxBodyBytes, storedHeaders } = this.#wanted;
    const { statusCode: status } = this.#reply;
    const headers = listedHeaders(storedHeaders, this.#reply.getHeaders());
    this.#answer = { status, headers };
    if (body instanceof Response) {
      Object.assign(headers, listedHeaders(storedHeaders, [...body.headers]));
      this.#answer = { status: body.status, headers, body: body.body === null ? "" : undefined };
    } else if (typeof (body ?? "") === "string" || body instanceof Uint8Array) {
      const kept = (body ?? "") as string | Uint8Array;
      if (Buffer.byteLength(kept) > maxBodyBytes) return;
      // Bytes are copied, because the handler may overwrite its buffer later.
      this.#answer = { status, headers, body: typeof kept === "string" ? kept : Buffer.from(kept) };
    }
  }

  /** Behind the serialiser, the answer is the handler's whatever fails. */
  failed(): void {
    if (this.#answer !== undefined) return;
    this.#hasFailed = true;
    this.#raw?.failed();
  }

  answer(): AnswerToStore | undefined {
    if (!this.hasSaid) return this.#raw?.answer();
    if (this.#hasFailed) return undefined;
    // The serialiser is still at work, or has failed, which the status shows.
    return this.#answer ?? { status: this.#reply.statusCode };
  }

  /** Holds the lease until the stream has ended: it may still write the order. */
  #watch(stream: NodeStream): void {
    finished(stream as never, { writable: false }, (error) => {
      // After its client has left, a stream may be torn down with an error that is not its own.
      if (error && !this.#exchange.closed && !this.#reply.raw.headersSent) this.#hasFailed = true;
      this.#held.finished();
    });
    this.#held.begin();
  }
}
