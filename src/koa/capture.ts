import type { ParameterizedContext } from "koa";
import type { Capture, WantedAnswer } from "../http/capture.ts";
import { ResponseCapture } from "../http/response-capture.ts";
import { pickHeaders } from "../http/stored-headers.ts";
import type { AnswerHeaders, AnswerToStore } from "../lock/record.ts";
import { bodyWithout, emptyStatuses } from "./bodies.ts";

// biome-ignore lint/suspicious/noExplicitAny: any state and any context of the application fits.
type AnyContext = ParameterizedContext<any, any, any>;

/**
 * What everything downstream has answered. From the context and not from the response: after a
 * client has left, Koa ends the response without the body. Only what goes past Koa, to the response
 * itself, is taken from there.
 */
export class ContextCapture implements Capture {
  readonly #ctx: AnyContext;
  readonly #wanted: WantedAnswer;
  readonly #response: ResponseCapture;
  #hasFailed = false;
  /** What the context said when everything downstream had settled. */
  #said: AnswerToStore | undefined;

  constructor(ctx: AnyContext, wanted: WantedAnswer) {
    this.#ctx = ctx;
    this.#wanted = wanted;
    this.#response = new ResponseCapture(ctx.res, wanted);
  }

  failed(): void {
    this.#hasFailed = true;
    this.#response.failed();
  }

  /** Everything downstream has settled. At once, because others may change the body later. */
  settled(): void {
    if (this.#hasFailed || this.#response.hasBegun || this.#ctx.respond === false) return;
    this.#response.discard();
    try {
      this.#said = this.#read();
    } catch {
      // Koa cannot send it either, and answers 500.
    }
  }

  /** The stream that is the body has failed. */
  bodyFailed(): void {
    const { res } = this.#ctx;
    const hasBegun = res.headersSent && res.statusCode === this.#said?.status;
    // Then the client was answered nothing, or what Koa says of the failure.
    if (!hasBegun) this.#said = undefined;
  }

  answer(): AnswerToStore | undefined {
    return this.#said ?? this.#response.answer();
  }

  #read(): AnswerToStore {
    const { body, status } = this.#ctx;
    const headers = pickHeaders(this.#wanted.storedHeaders, this.#ctx.res);
    if (emptyStatuses.has(status)) return { status, headers: withoutType(headers), body: "" };
    if (body === undefined || body === null) return this.#withoutBody(status, headers);
    // What a stream will bring is not seen.
    if (isStream(body)) return { status, headers };
    const isSentAsIs = typeof body === "string" || Buffer.isBuffer(body);
    return this.#whole(status, headers, isSentAsIs ? body : JSON.stringify(body));
  }

  #withoutBody(status: number, headers: AnswerHeaders): AnswerToStore {
    const { _explicitNullBody } = this.#ctx.response as { _explicitNullBody?: boolean };
    if (_explicitNullBody === true) return { status, headers: withoutType(headers), body: "" };
    const { text, type } = bodyWithout(this.#ctx);
    return this.#whole(status, { ...headers, "content-type": type }, text);
  }

  #whole(status: number, headers: AnswerHeaders, body: string | Buffer): AnswerToStore {
    const isKept = Buffer.byteLength(body) <= this.#wanted.maxBodyBytes;
    return { status, headers, body: isKept ? body : undefined };
  }
}

/** As Koa does it for an answer that has no body. */
function withoutType(headers: AnswerHeaders): AnswerHeaders {
  const { "content-type": _type, ...others } = headers;
  return others;
}

function isStream(body: unknown): boolean {
  if (body instanceof ReadableStream || body instanceof Response || body instanceof Blob) {
    return true;
  }
  return typeof (body as { pipe?: unknown }).pipe === "function";
}
