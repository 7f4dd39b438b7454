import type { FastifyReply } from "fastify";
import type { Capture, WantedAnswer } from "../http/port.ts";
import type { RequestLease } from "../http/request-lease.ts";
import { listedHeaders } from "../http/stored-answer.ts";
import type { AnswerToStore } from "../lock/record.ts";
import { isNodeStream, isOfWeb, type NodeStream, ResponseCapture } from "../node/capture.ts";
import type { NodeExchange } from "../node/exchange.ts";

/**
 * Sees the first payload that a handler returns or sends, before it is serialised and before
 * `onSend`: a replay passes it to `reply.send` again. Sees also when a stream that was sent has
 * ended. The raw response counts for a handler that has sent nothing, behind `reply.hijack()`.
 */
export class ReplyWatch implements Capture {
  readonly #reply: FastifyReply;
  readonly #held: RequestLease;
  readonly #exchange: NodeExchange;
  readonly #wanted: WantedAnswer | undefined;
  readonly #raw: ResponseCapture | undefined;
  #said: AnswerToStore | undefined;
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
    }
    const { send, then } = reply;
    reply.send = (payload) => {
      this.says(payload);
      return Reflect.apply(send, reply, [payload]);
    };
    // biome-ignore lint/suspicious/noThenProperty: Fastify's replies have one.
    reply.then = (fulfilled, rejected) => {
      this.isAwaited = true;
      Reflect.apply(then, reply, [fulfilled, rejected]);
    };
  }

  /** Whether the handler has sent an answer, or has taken the raw response. */
  get hasBegun(): boolean {
    return this.hasSaid || this.#reply.sent;
  }

  /** Whether the handler has nothing more to send. */
  get hasAnswered(): boolean {
    return this.hasSaid || this.#reply.raw.writableEnded;
  }

  /** Only the first payload counts: Fastify ignores those behind it. */
  says(payload: unknown): void {
    if (payload instanceof Error) this.failed();
    if (this.hasBegun || this.#hasFailed) return;
    this.hasSaid = true;
    this.#raw?.discard();
    if (this.#wanted !== undefined) this.#said = this.#read(payload, this.#wanted);
    if (isNodeStream(payload)) this.#watch(payload);
    else if (isOfWeb(payload)) this.isUnseen = true;
    // For a client that has left, Fastify sends no empty answer.
    else if (payload !== undefined) this.#exchange.willEnd();
  }

  failed(): void {
    // An answer that is on its way stays the handler's.
    if (this.hasSaid && this.#reply.raw.headersSent) return;
    this.#hasFailed = true;
    this.#said = undefined;
    this.#raw?.failed();
  }

  answer(): AnswerToStore | undefined {
    return this.#said ?? this.#raw?.answer();
  }

  /** Holds the lease until the stream has ended: it may still write the order. */
  #watch(stream: NodeStream): void {
    const held = this.#held;
    if (stream.closed === true) return;
    held.begin();
    let hasEnded = false;
    for (const event of ["close", "end", "error"]) {
      stream.once(event, (error) => {
        if (hasEnded) return;
        hasEnded = true;
        // After its client has left, a stream may be torn down with an error that is not its own.
        if (error !== undefined && !held.exchange.closed) this.failed();
        held.finished();
      });
    }
  }

  #read(payload: unknown, { maxBodyBytes, storedHeaders }: WantedAnswer): AnswerToStore {
    const { statusCode } = this.#reply;
    const headers = listedHeaders(storedHeaders, this.#reply.getHeaders());
    if (payload === undefined) return { status: statusCode, headers, body: "" };
    if (isOfWeb(payload) || isNodeStream(payload)) {
      if (!(payload instanceof Response)) return { status: statusCode, headers };
      const own = listedHeaders(storedHeaders, [...payload.headers]);
      const body = payload.body === null ? "" : undefined;
      return { status: payload.status, headers: { ...headers, ...own }, body };
    }
    const type = headers["content-type"] ?? typeOf(payload);
    const isJson = /json/i.test(`${type}`);
    const isText = typeof payload === "string";
    const isCharsetAdded = isJson && !ArrayBuffer.isView(payload) && !/charset=/i.test(`${type}`);
    headers["content-type"] = isCharsetAdded ? `${type}; charset=utf-8` : type;
    let body: string | Uint8Array | undefined;
    if (ArrayBuffer.isView(payload)) {
      // Copied, because the handler may overwrite its buffer later.
      body = Buffer.from(new Uint8Array(payload.buffer, payload.byteOffset, payload.byteLength));
    } else if (isText) body = payload;
    // Any other type is made by a serializer of the handler's own, which a replay does not have.
    else if (isJson) body = jsonOf(payload);
    const isKept = body !== undefined && Buffer.byteLength(body) <= maxBodyBytes;
    return { status: statusCode, headers, body: isKept ? body : undefined };
  }
}

/** The type that Fastify sets for a payload without one. */
function typeOf(payload: unknown): string {
  if (ArrayBuffer.isView(payload)) return "application/octet-stream";
  return typeof payload === "string" ? "text/plain; charset=utf-8" : "application/json";
}

/** `undefined` where JSON cannot say the value: then Fastify cannot either, and answers 500. */
function jsonOf(payload: unknown): string | undefined {
  try {
    return JSON.stringify(payload);
  } catch {
    return undefined;
  }
}
