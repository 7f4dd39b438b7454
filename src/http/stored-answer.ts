import { isUtf8 } from "node:buffer";
import { InvalidOptionError } from "../errors.ts";
import type { AnswerHeaders, AnswerToStore, StoredAnswer } from "../lock/record.ts";
import { describe, drop, invalidOption } from "../validation.ts";
import type { StorePolicy } from "./public.ts";

const passing = new Set([401, 403, 407, 408, 409, 421, 423, 425, 429]);

/** @throws errors of the policy's function, and InvalidOptionError if it returns no boolean. */
export function isStored(policy: StorePolicy, answer: AnswerToStore): boolean {
  const { body, headers = {}, status } = answer;
  // 1xx is not an answer, and 5xx is never kept.
  if (status < 200 || status >= 500) return false;
  if (policy === "success") return status < 400;
  if (policy === "final") return !passing.has(status);
  const bytes = typeof body === "string" ? Buffer.from(body) : body;
  const verdict: unknown = policy({ status, headers, body: bytes });
  // A promise is truthy, and would keep every answer.
  if (typeof verdict !== "boolean") {
    drop(verdict);
    throw invalidOption("idempotency.store", "a function that returns true or false", verdict);
  }
  return verdict;
}

/** The most characters of one answer's stored headers, names and values together. */
const maxHeadersLength = 8_192;

/** Whether headers are too long to be kept: a client could fill Redis by a long `Location`. */
export function hasLongHeaders({ headers = {} }: AnswerToStore): boolean {
  let length = 0;
  for (const name in headers) length += name.length + String(headers[name]).length;
  return length > maxHeadersLength;
}

/** Whether a status promises a `Location`. */
export function isRedirect(status: number): boolean {
  return [301, 302, 303, 307, 308].includes(status);
}

/** What servers send as a header's value: RFC 9110, section 5.5. */
const sendable = /^[\t\x20-\x7e\x80-\xff]*$/;

/** Whether the kept answer can be repeated: complete, and in a coding that the client accepts. */
export function isReadable(answer: StoredAnswer, accept: string | undefined): boolean {
  const { body, headers, status } = answer;
  // From a handler's own complete, or from Fastify, which had to answer 500.
  if (!sendable.test(Object.values(headers).flat().join(""))) return false;
  // A redirect without body and `Location` is not whole: a router may add the `Location` later.
  if (isRedirect(status) && !body?.length && headers["location"] === undefined) return false;
  if (body !== undefined) return isCodingAccepted(headers["content-encoding"] ?? "", accept ?? "");
  // A 3xx needs only its headers. No other answer is whole without its body.
  return status >= 300 && status < 400;
}

/**
 * Whether a client accepts a coding (RFC 9110, section 12.5.3). Without `Accept-Encoding`, the RFC
 * says that all are accepted; here none is, because most such clients cannot decode any.
 */
function isCodingAccepted(coding: AnswerHeaders[string], accept: AnswerHeaders[string]): boolean {
  const accepted = new Map<string, boolean>();
  for (const element of codingsOf(accept)) {
    // Split, then trim: a regular expression would take quadratic time for a run of blanks.
    const [name = "", ...parameters] = element.split(";").map((each) => each.trim());
    accepted.set(name, !parameters.some((each) => /^q\s*=\s*0(\.0*)?$/.test(each)));
  }
  return codingsOf(coding)
    .filter((name) => name !== "identity")
    .every((name) => accepted.get(name) ?? accepted.get("*") ?? false);
}

/** Lists codings in lower case, and `x-gzip` as `gzip` (RFC 9110, section 8.4.1.3). */
function codingsOf(value: string | readonly string[]): string[] {
  return listOf(value).map((each) => each.toLowerCase().replace(/^x-gzip\b/, "gzip"));
}

function listOf(value: unknown): string[] {
  return `${value}`.split(",").flatMap((each) => each.trim() || []);
}

/** Always stored: headers of the answer itself. Middleware sets CORS headers at each replay. */
const always = [
  ...["content-type", "content-encoding", "content-language", "content-disposition"],
  ...["content-location", "content-range", "link", "location"],
  ...["etag", "last-modified", "cache-control", "vary"],
  // They may be all of an answer: htmx's, and nginx's, which sends a file in place of the body.
  ...["hx-location", "hx-push-url", "hx-redirect", "hx-refresh", "hx-replace-url", "hx-reselect"],
  ...["hx-reswap", "hx-retarget", "hx-trigger", "hx-trigger-after-settle", "hx-trigger-after-swap"],
  "x-accel-redirect",
  // They tell the clients of Inertia and TanStack how to read a body, React Router's how to go on.
  ...["x-inertia", "x-tss-raw", "x-tss-serialized"],
  ...["x-remix-reload-document", "x-remix-replace", "x-remix-revalidate"],
];

/**
 * Never stored: headers of a session or its secrets, of the connection (RFC 9110, section 7.6.1),
 * or new each time. A pattern, because no list knows the name of the next session header.
 */
const never =
  /cookie|auth(?!ors?(?:-|$))|csrf|xsrf|session|token|secret|passw|api-key|jwt|(?:^|-)(?:otp|sid)(?:-|$)|^proxy-|^sec-|^(?:clear-site-data|connection|keep-alive|te|trailer|transfer-encoding|upgrade|date|content-length)$/;

/** A field name is a token: RFC 9110, section 5.6.2. */
const token = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;

export function resolveStoredHeaders(replayHeaders: readonly string[] = []): ReadonlySet<string> {
  const option = "idempotency.replayHeaders";
  if (!Array.isArray(replayHeaders)) {
    throw invalidOption(option, "an array of header names", replayHeaders);
  }
  for (const name of replayHeaders) {
    if (typeof name !== "string" || !token.test(name)) {
      throw invalidOption(option, "an array of header names", name);
    }
    if (never.test(name.toLowerCase())) {
      throw new InvalidOptionError(
        `${option}: expected headers that belong to the answer itself, got ${describe(name)}, which is never repeated`,
      );
    }
  }
  return new Set([...always, ...replayHeaders.map((name) => name.toLowerCase())]);
}

/** Marks kept headers as a replay. @param earlier the outer middleware's `Vary`, to be joined. */
export function headersToRepeat(headers: AnswerHeaders, earlier?: unknown): Picked {
  const repeated = { ...headers, "Idempotent-Replayed": "true" } as Picked;
  const { vary } = headers;
  if (vary !== undefined) {
    const union = new Map(listOf([earlier ?? [], vary]).map((name) => [name.toLowerCase(), name]));
    repeated["vary"] = [...union.values()].join(", ");
  }
  return repeated;
}

/** Returns a kept body in a form in which a handler sets it: a JSON value, a text or bytes. */
export function bodyToRepeat(body: Uint8Array, type: string): unknown {
  const bytes = Buffer.from(body.buffer, body.byteOffset, body.byteLength);
  if (!isUtf8(bytes)) return bytes;
  const text = bytes.toString();
  if (!/\bjson\b/i.test(type)) return type.startsWith("text/") ? text : bytes;
  try {
    const value: unknown = JSON.parse(text);
    // Return the value only if the framework will make the same text of it.
    const isSame = typeof value === "object" && value !== null && JSON.stringify(value) === text;
    return isSame ? value : text;
  } catch {
    return text;
  }
}

/** Headers by lower-case name, without a prototype; {@link headersToRepeat} keeps neither rule. */
export type Picked = Record<string, string | string[]>;

/** Returns the headers named in `stored`. @param isLastOnly keeps a repeated name's last value. */
export function listedHeaders(
  stored: ReadonlySet<string>,
  headers: object,
  isLastOnly = true,
): Picked {
  const picked: Picked = Object.create(null);
  for (const [name, value] of Array.isArray(headers) ? headers : Object.entries(headers)) {
    const key = String(name).toLowerCase();
    const text = stored.has(key) ? textOf(value) : undefined;
    if (text === undefined) continue;
    const earlier = picked[key];
    picked[key] = earlier === undefined || isLastOnly ? text : [earlier, text].flat();
  }
  return picked;
}

/** Removes outer middleware's unchanged headers, except `content-…`: a replay gets them anew. */
export function withoutOuter(headers: Picked, outer: Picked): Picked {
  for (const name in outer) {
    if (!name.startsWith("content-") && `${headers[name]}` === `${outer[name]}`)
      delete headers[name];
  }
  return headers;
}

export function textOf(value: unknown): string | string[] | undefined {
  if (value === undefined || value === null) return undefined;
  return Array.isArray(value) ? value.map(String) : String(value);
}
