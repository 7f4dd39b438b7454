import { STATUS_CODES } from "node:http";
import type { ParameterizedContext } from "koa";
import type { Capture } from "../http/capture.ts";
import { pickHeaders } from "../http/stored-headers.ts";
import type { AnswerHeaders, AnswerToStore } from "../lock/answer.ts";

// biome-ignore lint/suspicious/noExplicitAny: any state and any context of the application fits.
type AnyContext = ParameterizedContext<any, any, any>;

/** Statuses whose answers have no body: RFC 9110, section 6.4.1, and 205. */
const empty = new Set([204, 205, 304]);

/**
 * What everything downstream has answered, from the context and not from the response: after a
 * client has left, Koa ends the response without the body.
 */
export class ContextCapture implements Capture {
  readonly #answer: AnswerToStore | undefined;

  constructor(ctx: AnyContext, storedHeaders: ReadonlySet<string>, maxBodyBytes: number) {
    const status = ctx.respond === false ? ctx.res.statusCode : ctx.status;
    const headers = pickHeaders(storedHeaders, ctx.res.getHeaders());
    this.#answer = answerOf(ctx, status, headers, maxBodyBytes);
  }

  answer(): AnswerToStore | undefined {
    return this.#answer;
  }
}

function answerOf(
  ctx: AnyContext,
  status: number,
  headers: AnswerHeaders,
  maxBodyBytes: number,
): AnswerToStore | undefined {
  // What goes past Koa is not seen, nor what a stream will bring.
  if (ctx.respond === false || isStream(ctx.body)) return { status, headers };
  const kept = (body: string | Uint8Array, given = headers): AnswerToStore => ({
    status,
    headers: given,
    body: Buffer.byteLength(body) > maxBodyBytes ? undefined : body,
  });
  const { body } = ctx;
  if (empty.has(status) || isExplicitlyEmpty(ctx)) return kept("");
  // Koa then answers with the reason phrase.
  if (body === undefined || body === null) {
    const text = ctx.message || STATUS_CODES[status] || String(status);
    return kept(text, { ...headers, "content-type": "text/plain; charset=utf-8" });
  }
  if (typeof body === "string" || body instanceof Uint8Array) return kept(body);
  // At once: what others do to the object later is not this answer.
  return kept(JSON.stringify(body));
}

function isExplicitlyEmpty(ctx: AnyContext): boolean {
  const { _explicitNullBody } = ctx.response as { _explicitNullBody?: boolean };
  return _explicitNullBody === true;
}

function isStream(body: unknown): boolean {
  if (body instanceof ReadableStream || body instanceof Response || body instanceof Blob)
    return true;
  return typeof (body as { pipe?: unknown } | null | undefined)?.pipe === "function";
}
