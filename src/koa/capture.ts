import type { ServerResponse } from "node:http";
import { isErrored, Readable } from "node:stream";
import type { ParameterizedContext } from "koa";
import type { Capture, WantedAnswer } from "../http/port.ts";
import { bodyToRepeat } from "../http/stored-answer.ts";
import type { AnswerToStore, StoredAnswer } from "../lock/record.ts";
import {
  type Head,
  isNodeStream,
  type NodeStream,
  ResponseCapture,
  webStreamOf,
} from "../node/capture.ts";
import { isError } from "../validation.ts";

// biome-ignore lint/suspicious/noExplicitAny: any state and any context of the application fits.
export type AnyContext = ParameterizedContext<any, any, any>;

/** The text that Koa sends for a response without a body. */
function bodyWithout(ctx: AnyContext): { readonly text: string; readonly type: string } {
  const code = String(ctx.status);
  const text = ctx.req.httpVersionMajor >= 2 ? code : ctx.message || code;
  return { text, type: "text/plain; charset=utf-8" };
}

/** Captures an answer from the context, because Koa writes nothing to a client that has left. */
export class ContextCapture implements Capture {
  readonly #ctx: AnyContext;
  readonly #wanted: WantedAnswer;
  readonly #response: ResponseCapture;
  #hasFailed = false;
  /** The answer of the context when everything downstream had settled. */
  #payload: (Head & AnswerToStore) | undefined;
  isDone = false;
  /** Set if the response ended before the handler: the body then, and a status that is set later. */
  #late: { readonly body: unknown; status?: number } | undefined;
  /**
   * The web stream that was the body when everything downstream had settled. `answer` looks whether
   * this stream has failed.
   */
  #web: ReadableStream | null | undefined;

  constructor(ctx: AnyContext, wanted: WantedAnswer) {
    this.#ctx = ctx;
    this.#wanted = wanted;
    this.#response = new ResponseCapture(ctx.res, wanted);
  }

  failed(): void {
    this.#hasFailed = true;
    this.#response.failed();
  }

  /** Notes a status that the handler sets from now on, because Koa ignores it. */
  responseEnded(): void {
    const { body, res, response } = this.#ctx;
    if (this.#late !== undefined || this.#ctx.respond === false) return;
    const late: { body: unknown; status?: number } = { body };
    this.#late = late;
    Object.defineProperty(response, "status", {
      configurable: true,
      get: () => res.statusCode,
      set: (status: number) => {
        late.status = status;
      },
    });
  }

  /**
   * Reads the answer as soon as everything downstream has settled, before outer middleware changes
   * it.
   */
  settled(): void {
    if (this.#hasFailed || this.#ctx.respond === false) return;
    const { body, status } = this.#ctx;
    if (this.#response.hasBody) {
      const late = this.#late;
      if (late !== undefined) {
        this.isDone = late.status === undefined ? late.body !== body : late.status < 400;
      }
      return;
    }
    const isSent = this.#response.head !== undefined;
    try {
      const payload = this.#read();
      // The bytes of a stream are captured from the response if its head was flushed.
      if (isSent && payload.body === undefined) return;
      this.#payload = payload;
      this.#response.settle(payload);
    } catch {
      // JSON cannot show the body, such as a circle. Koa cannot send it either, and answers 500.
      if (isSent) return;
      this.#response.failed();
      this.isDone = status < 400;
    }
  }

  bodyFailed(): void {
    const { res } = this.#ctx;
    const hasBegun = res.headersSent && res.statusCode === this.#response.head?.status;
    if (hasBegun) return;
    // Keep no answer: the client got none, or an error of Koa.
    this.#payload = undefined;
    this.#response.discard();
  }

  answer(): AnswerToStore | undefined {
    if (isErrored(this.#web as never)) this.bodyFailed();
    const payload = this.#payload;
    if (payload === undefined) return this.#response.answer();
    const head = this.#response.head ?? payload;
    // If inner middleware has encoded the body on `res` itself, the client got other bytes.
    const isSame =
      `${head.headers["content-encoding"]}` === `${payload.headers["content-encoding"]}`;
    return { ...head, body: isSame ? payload.body : undefined };
  }

  othersAnswer(): AnswerToStore | undefined {
    return this.#response.othersAnswer();
  }

  #read(): Head & AnswerToStore {
    const { body, response, status } = this.#ctx;
    const headers = this.#response.headers();
    const isAbsent = body === undefined || body === null;
    const { _explicitNullBody } = response as { readonly _explicitNullBody?: boolean };
    // Koa sends no body and no type where the status, or an explicit `null`, excludes a body.
    if ([204, 205, 304].includes(status) || (isAbsent && _explicitNullBody === true)) {
      delete headers["content-type"];
      return { status, headers, body: "" };
    }
    let sent = body;
    if (isAbsent) {
      const { text, type } = bodyWithout(this.#ctx);
      headers["content-type"] = type;
      sent = text;
    } else if (typeof body !== "string" && !Buffer.isBuffer(body)) {
      // Status and headers only: the bytes of a stream are captured from the response, if at all.
      this.#web = webStreamOf(body);
      const isOfWeb = this.#web !== undefined || body instanceof Blob;
      if (isOfWeb || isNodeStream(body)) return { status, headers };
      sent = JSON.stringify(body);
    }
    const isKept = Buffer.byteLength(sent) <= this.#wanted.maxBodyBytes;
    return { status, headers, body: isKept ? sent : undefined };
  }
}

/** Repeats an answer, with the kind of body that the handler set: outer middleware may need it. */
export function repeat(ctx: AnyContext, { body, headers, status }: StoredAnswer): void {
  // The status is set before and after the body, whose assignment may replace it.
  ctx.status = status;
  const type = headers["content-type"];
  if (body === undefined || (body.length === 0 && type === undefined)) {
    // Remove the type first: for `null` and a JSON type, Koa 3 would send the text `null`.
    ctx.remove("Content-Type");
    ctx.body = null;
  } else {
    const bytes = Buffer.from(body.buffer, body.byteOffset, body.byteLength);
    const byKoa = bodyWithout(ctx);
    const isByKoa = type === byKoa.type && bytes.toString() === byKoa.text;
    if (!isByKoa) ctx.body = bodyToRepeat(bytes, String(type));
    // Koa has guessed a type that the stored answer does not have.
    if (type === undefined) ctx.remove("Content-Type");
  }
  ctx.status = status;
}

const watchOf: unique symbol = Symbol("submit-lock.body");

interface Watched {
  body: unknown;
  readonly res: ServerResponse;
  [watchOf]?: {
    readonly response: Watched;
    /** The own property `body` that other middleware had defined on the response, if any. */
    readonly outer: PropertyDescriptor | undefined;
    readonly watchers: BodyStreams[];
  };
}

/** The property `body` of all watched responses: shared, so that they keep one hidden class. */
const watchedBody: PropertyDescriptor & ThisType<Required<Watched>> = {
  configurable: true,
  get() {
    const { response, outer } = this[watchOf];
    if (outer !== undefined) return outer.get ? outer.get.call(response) : outer.value;
    return Reflect.get(Object.getPrototypeOf(response), "body", response);
  },
  set(body: unknown) {
    const { response, outer, watchers } = this[watchOf];
    if (outer?.set) outer.set.call(response, body);
    else Reflect.set(Object.getPrototypeOf(response), "body", body, response);
    for (const watcher of watchers) watcher.see(body);
  },
};

/** All streams that were a response's `body`: even a replaced stream may still write the order. */
export class BodyStreams {
  readonly #response: Watched;
  readonly #streams = new Set<NodeStream>();
  readonly #ofWeb = new Set<ReadableStream>();

  constructor(response: Watched) {
    this.#response = response;
    this.see(response.body);
    const watch = Object.hasOwn(response, watchOf) ? response[watchOf] : undefined;
    if (watch !== undefined) {
      watch.watchers.push(this);
      return;
    }
    const outer = Object.getOwnPropertyDescriptor(response, "body");
    response[watchOf] = { response, outer, watchers: [this] };
    Object.defineProperty(response, "body", watchedBody);
  }

  /** A `ReadableStream` or a `Response` was the body, and its work may go on. */
  get isUnseen(): boolean {
    return [...this.#ofWeb].some((stream) => !isErrored(stream as never));
  }

  /**
   * Calls `ended` once, when every stream has ended; at once where there is none.
   * @param isDisconnected whether the client has left, so that nothing reads the body any more.
   * @param ended `hasErrored`: a stream emitted an error. `hasFailed`: the body closed before its
   * end, and Koa 2 leaves the response open.
   */
  whenEnded(
    isDisconnected: boolean,
    ended: (how: { hasFailed: boolean; hasErrored: boolean }) => void,
  ): void {
    const how = { hasFailed: false, hasErrored: false };
    const open = new Set(this.#streams);
    const streamEnded = (stream: NodeStream, hasErrored: boolean): void => {
      if (!open.delete(stream)) return;
      if (hasErrored) how.hasErrored = true;
      if (stream.readableEnded === false && this.#response.body === stream) how.hasFailed = true;
      if (open.size === 0) ended(how);
    };
    if (open.size === 0) ended(how);
    for (const stream of this.#streams) {
      if (stream.closed === true) streamEnded(stream, isError(stream.errored));
      // Destroy a stream that was never read: on HTTP/2 Koa would read it, and it would write the
      // order.
      else if (isDisconnected && stream instanceof Readable) {
        if (!Readable.isDisturbed(stream) && stream.readableFlowing !== true) stream.destroy();
      }
    }
    if (open.size === 0) return;
    // Koa destroys open streams, too, but Koa 2 misses a response that is behind a pipelined one.
    this.#response.res.once("close", () => {
      for (const stream of open) if (stream instanceof Readable) stream.destroy();
    });
    for (const stream of open) {
      // Listen for all three: `close` follows an aborted generator's work, but old streams lack it.
      for (const event of ["close", "end", "error"]) {
        stream.once(event, (error) => streamEnded(stream, error !== undefined));
      }
    }
  }

  see(body: unknown): void {
    const web = webStreamOf(body);
    if (web) this.#ofWeb.add(web);
    else if (isNodeStream(body)) this.#streams.add(body);
  }
}
