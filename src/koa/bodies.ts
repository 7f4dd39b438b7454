import { isUtf8 } from "node:buffer";
import type { ParameterizedContext } from "koa";
import type { StoredAnswer } from "../lock/record.ts";

// biome-ignore lint/suspicious/noExplicitAny: any state and any context of the application fits.
type AnyContext = ParameterizedContext<any, any, any>;

/** Statuses that Koa answers without a body. */
export const emptyStatuses: ReadonlySet<number> = new Set([204, 205, 304]);

/** What Koa answers where no body was set. */
export function bodyWithout(ctx: AnyContext): { readonly text: string; readonly type: string } {
  const code = String(ctx.status);
  const text = ctx.req.httpVersionMajor >= 2 ? code : ctx.message || code;
  return { text, type: "text/plain; charset=utf-8" };
}

/**
 * Sets status and body of a stored answer, the body as what it was, so that outer middleware does
 * with it what it did the first time: JSON as a value, text as a string, and no body as none.
 */
export function repeat(ctx: AnyContext, { body, headers, status }: StoredAnswer): void {
  // First and last: assigning a body sets a status where there is none, or replaces it.
  ctx.status = status;
  const type = headers["content-type"];
  if (body === undefined || (body.length === 0 && type === undefined)) {
    // Koa 3 makes the text `null` of it where the type is that of JSON.
    ctx.remove("Content-Type");
    ctx.body = null;
  } else {
    const bytes = Buffer.from(body.buffer, body.byteOffset, body.byteLength);
    const byKoa = bodyWithout(ctx);
    const isByKoa = type === byKoa.type && bytes.toString() === byKoa.text;
    if (!isByKoa) ctx.body = bodyOf(bytes, String(type));
    // One that Koa has guessed.
    if (type === undefined) ctx.remove("Content-Type");
  }
  ctx.status = status;
}

function bodyOf(bytes: Buffer, type: string): unknown {
  if (/\bjson\b/i.test(type)) return jsonOf(bytes) ?? bytes;
  return type.startsWith("text/") && isUtf8(bytes) ? bytes.toString() : bytes;
}

/** Only what becomes the same bytes again. */
function jsonOf(bytes: Buffer): unknown {
  if (!isUtf8(bytes)) return undefined;
  const text = bytes.toString();
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && JSON.stringify(value) === text ? value : undefined;
  } catch {
    return undefined;
  }
}
