import { isUtf8 } from "node:buffer";
import { finished, isErrored, Readable } from "node:stream";
import { types } from "node:util";
import type { FastifyReply } from "fastify";
import type { Capture, WantedAnswer } from "../http/port.ts";
import { type RequestLease, warnIfHeldToMaxHold } from "../http/request-lease.ts";
import { listedHeaders, type Picked, withoutOuter } from "../http/stored-answer.ts";
import type { AnswerToStore } from "../lock/record.ts";
import {
  isNodeStream,
  isWebResponse,
  type NodeStream,
  ResponseCapture,
  webStreamOf,
} from "../node/capture.ts";
import { heldBackMs, type NodeExchange } from "../node/exchange.ts";
import { setImmediate, setTimeout } from "../time.ts";
import { isError } from "../validation.ts";

const firstHook: unique symbol = Symbol("the hook before all onSend hooks");

interface Hooked extends FastifyReply {
  /**
   * Gets the reply's payload before all `onSend` hooks, and may replace it. Not in a `WeakMap`: for
   * its dead entries, the garbage collector takes a fifth of an order's processor time.
   */
  [firstHook]?: ((body: unknown) => unknown) | undefined;
}

/** Adds a guard's function. An outer guard's function gets the payload of the inner guard. */
function hookFirst(reply: Hooked, hook: (body: unknown) => unknown): void {
  const outer = reply[firstHook];
  reply[firstHook] = (body) => {
    const sent = hook(body);
    outer?.(sent ?? body);
    return sent;
  };
}

type Done = (error: null, body: unknown) => void;

function firstOnSend(_request: unknown, reply: Hooked, body: unknown, done: Done): void {
  done(null, reply[firstHook]?.(body));
}

/**
 * Makes {@link firstOnSend} the first `onSend` hook of the route. Fastify has no public way: hooks
 * cannot be added once Fastify is ready, a route's hooks run last, and `reply.serializer` replaces
 * the application's serializer, which cannot be read. Returns false if the route's hooks are not
 * found in the request: then no body is kept.
 */
function hookInto(request: object): boolean {
  for (const symbol of Object.getOwnPropertySymbols(request)) {
    const context = Object(Reflect.get(request, symbol));
    if (!("onSend" in context && "preSerialization" in context)) continue;
    const hooks: unknown[] = context.onSend ?? [];
    if (!hooks.includes(firstOnSend)) context.onSend = [firstOnSend, ...hooks];
    return true;
  }
  return false;
}

/** Sends a kept body, as text or bytes, from {@link firstOnSend}: all later hooks get that body. */
export function sendAgain(reply: Hooked, body?: Uint8Array, type?: unknown): FastifyReply {
  if (body === undefined || (body.length === 0 && type === undefined)) return reply.send();
  const isText = isUtf8(body) && type !== "application/octet-stream";
  const repeated = isText ? Buffer.from(body).toString() : Buffer.from(body);
  if (!hookInto(reply.request)) return reply.send(repeated);
  hookFirst(reply, () => {
    reply[firstHook] = undefined;
    return repeated;
  });
  return reply.send();
}

/** Captures a handler's first payload before `onSend`; after `reply.hijack()`, the raw response. */
export class ReplyWatch implements Capture {
  readonly #reply: FastifyReply;
  readonly #held: RequestLease;
  readonly #wanted: WantedAnswer | undefined;
  readonly #raw: ResponseCapture | undefined;
  /** The headers that the reply had before the handler began. */
  #outer: Picked = Object.create(null);
  #answer: AnswerToStore | undefined;
  #others: AnswerToStore | undefined;
  #sends = 0;
  #hasSaid = false;
  #hasFailed = false;
  /** The handler has succeeded: it sent or returned a payload with a status below 400. */
  #isWell = false;
  /** The status of a response that ended before the handler did. */
  #endedStatus: number | undefined;
  /** Other code, such as a time-out, has answered, and the handler has succeeded after that. */
  #isLate = false;
  /** The handler waits for the response: `await reply`, or `return reply` of an async function. */
  #isAwaited = false;
  /** A web stream that was sent. The guard cannot see the end of its work. */
  #web: ReadableStream | null | undefined;

  constructor(reply: FastifyReply, held: RequestLease, wanted: WantedAnswer | undefined) {
    this.#reply = reply;
    this.#held = held;
    this.#wanted = wanted;
    if (wanted !== undefined) {
      try {
        this.#outer = listedHeaders(wanted.storedHeaders, reply.getHeaders());
      } catch {
        // The value of a header is not a text: Fastify itself fails when it sends that header.
      }
      this.#raw = new ResponseCapture(reply.raw, wanted);
      hookFirst(reply, (body) => this.#serialised(body));
    }
    const { send, then } = reply;
    reply.send = (payload) => {
      this.#saysLate(payload);
      this.#says(payload);
      // The error handler answers for a stream that has failed before its first byte.
      if (isErrored(this.#web as never) && !reply.raw.headersSent) this.#hasFailed = true;
      this.#sends++;
      // Hook in at each call, because `reply.callNotFound` changes the route.
      if (wanted !== undefined) hookInto(reply.request);
      return Reflect.apply(send, reply, [isError(payload) ? held.errorOf(payload) : payload]);
    };
    // biome-ignore lint/suspicious/noThenProperty: Fastify's replies have one.
    reply.then = (fulfilled, rejected) => {
      this.#isAwaited = true;
      // Fastify would wait forever for a response of HTTP/2 that has closed before.
      if (held.exchange.clientLeft) fulfilled();
      else Reflect.apply(then, reply, [fulfilled, rejected]);
    };
  }

  async run(handler: () => unknown): Promise<unknown> {
    const reply = this.#reply;
    const held = this.#held;
    held.begin(this.#wanted && this);
    let isPromise = false;
    try {
      const returned = handler();
      // `reply` is not a promise of the work: its `then` also resolves when the client leaves.
      isPromise = returned !== reply && typeof (returned as Promise<unknown>)?.then === "function";
      const value = isPromise ? await returned : returned;
      const hasSent = this.#hasSaid;
      const isWaiting = this.#isAwaited && !hasSent && !reply.raw.writableEnded;
      if (returned === reply || (isPromise ? isWaiting : returned === undefined)) {
        held.detached(this.#abandoned);
        return reply;
      }
      this.#saysLate(value);
      this.#says(value);
      if (this.#web) {
        // The client may have left during an `await reply`: no event will call `#abandoned` then.
        if (held.exchange.clientLeft) this.#abandoned(held);
        held.detached(this.#abandoned);
      } else held.finished();
      // Return `reply`: Fastify would send `undefined` while hooks still hold the payload back.
      return hasSent && value === undefined ? reply : value;
    } catch (error) {
      this.failed();
      const own = held.failed(error);
      // A handler without a promise may have started work before it threw.
      if (!isPromise) held.detached();
      // The error handler must answer before `finished` ends the lease of a client that has left.
      else if (held.exchange.clientLeft) setImmediate(() => held.finished());
      else held.finished();
      throw own;
    }
  }

  readonly #abandoned = (held: RequestLease): void => {
    if (!this.#web) warnIfHeldToMaxHold(held);
    else if (isErrored(this.#web as never)) held.end();
    // Fastify cancels the stream and ends the response, but the stream's work may go on.
    else held.unseen();
  };

  /** Notes the handler's payload, sent or returned. Fastify ignores all but the first. */
  #says(payload: unknown): void {
    if (isError(payload) && !this.#hasSaid) {
      this.failed();
      this.#held.failed(payload);
    }
    if (this.#hasSaid || this.#reply.sent || this.#hasFailed) return;
    this.#hasSaid = true;
    const { status = this.#reply.statusCode } = isWebResponse(payload) ? payload : {};
    this.#isWell = status < 400;
    this.#raw?.discard();
    this.#web = webStreamOf(payload);
    if (isNodeStream(payload)) this.#watch(payload);
    // Note an empty answer here, because Fastify sends none to a client that has left.
    else if (payload === undefined) this.#serialised(payload);
    else if (!this.#web) (this.#held.exchange as NodeExchange).willEnd();
  }

  responseEnded(): void {
    this.#endedStatus ??= this.#reply.statusCode;
  }

  #saysLate(payload: unknown): void {
    const reply = this.#reply;
    const isPayload = payload !== undefined && payload !== reply && !isError(payload);
    if (!isPayload || this.#endedStatus === undefined) return;
    this.#isLate ||= reply.statusCode < 400 || reply.statusCode === this.#endedStatus;
  }

  get isDone(): boolean {
    return this.#isLate || (this.#isWell && !this.#hasFailed && this.#answer === undefined);
  }

  /** Keeps the handler's serialised payload as the answer. Later ones are the error handler's. */
  #serialised(body: unknown): void {
    if (this.#wanted === undefined) return;
    const isOthers = this.#hasFailed || this.#sends > 1;
    if (isOthers && this.#answer === undefined) this.#others ??= this.#read(body, this.#wanted);
    if (isOthers) return;
    // Keep no payload that Fastify cannot send: a locked web stream, or any other object.
    const content = (isWebResponse(body) ? body.body : body) ?? "";
    const isText = typeof content === "string" || types.isUint8Array(content);
    if (!isText && !isNodeStream(content) && Object(content).locked !== false) return;
    this.#answer = this.#read(body, this.#wanted);
  }

  /** Once the payload is serialised, the answer is the handler's, whatever fails. */
  failed(): void {
    if (this.#answer !== undefined) return;
    this.#hasFailed = true;
    this.#raw?.failed();
    // Capture the error handler's answer before the application's hooks: a repeat passes them, too.
    if (this.#wanted !== undefined) hookInto(this.#reply.request);
  }

  answer(): AnswerToStore | undefined {
    if (!this.#hasSaid) return this.#raw?.answer();
    if (this.#hasFailed || this.#wanted === undefined) return undefined;
    // Until the payload is serialised, or if serialising fails, only status and headers are known.
    return this.#answer ?? this.#read({}, this.#wanted);
  }

  othersAnswer(): AnswerToStore | undefined {
    return this.#others ?? this.#raw?.othersAnswer();
  }

  #read(body: unknown, { maxBodyBytes, storedHeaders }: WantedAnswer): AnswerToStore {
    const { statusCode: status } = this.#reply;
    let headers: Picked;
    try {
      headers = withoutOuter(listedHeaders(storedHeaders, this.#reply.getHeaders()), this.#outer);
    } catch {
      // The value of a header is not a text. Keep the status alone, so that a repeat gets 409.
      return { status };
    }
    if (isWebResponse(body)) {
      Object.assign(headers, listedHeaders(storedHeaders, [...body.headers]));
      return { status: body.status, headers, body: body.body === null ? "" : undefined };
    }
    // Fastify sends no body with a 204, whatever the handler has returned.
    const kept = status === 204 ? "" : (body ?? "");
    if (typeof kept !== "string" && !types.isUint8Array(kept)) return { status, headers };
    if (Buffer.byteLength(kept) > maxBodyBytes) return { status, headers };
    // Bytes are copied, because the handler may overwrite its buffer later.
    return { status, headers, body: typeof kept === "string" ? kept : Buffer.from(kept) };
  }

  /** Holds the lease until the stream has ended: it may still write the order. */
  #watch(stream: NodeStream): void {
    const held = this.#held;
    finished(stream as never, { writable: false }, (error) => {
      // After the client has left, a stream may be torn down with an error that it did not cause.
      if (error && !held.exchange.clientLeft && !this.#reply.raw.headersSent)
        this.#hasFailed = true;
      held.finished();
    });
    held.begin();
    // If a hook fails, Fastify answers the error, and never reads the stream: destroy the stream.
    const endUnread = () => {
      if (!(stream instanceof Readable)) return;
      // Spare a stream that Fastify reads without sending it, as with a 204.
      const isRead = Readable.isDisturbed(stream) || stream.readableFlowing === true;
      if (!isRead) stream.destroy();
    };
    // Hooks may run on after a client has left: only later is it sure that the stream is unread.
    const endLater = () => void setTimeout(endUnread, heldBackMs).unref();
    const { raw } = this.#reply;
    if (held.exchange.clientLeft) endLater();
    else raw.once("close", () => (raw.writableEnded ? endUnread() : endLater()));
  }
}
