import type { ServerResponse } from "node:http";
import { InvalidOptionError } from "../errors.ts";
import type { AnswerHeaders } from "../lock/record.ts";
import { describe, invalidOption } from "../validation.ts";

/**
 * The headers that belong to an answer rather than to the request or the connection that it was
 * given on. CORS, security headers and the like are set anew for each request, by the application's
 * own middleware.
 */
const always = [
  "content-type",
  // Of the bytes as they are stored: what encodes them outside of the guard comes later.
  "content-encoding",
  "content-language",
  "content-disposition",
  "content-location",
  "content-range",
  "link",
  "location",
  "etag",
  "last-modified",
  "cache-control",
  "vary",
];

/** Somebody's session, the connection's own (RFC 9110, section 7.6.1), or computed for each answer. */
const never = new Set([
  "set-cookie",
  "connection",
  "keep-alive",
  "proxy-authenticate",
  "proxy-authorization",
  "proxy-connection",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
  "date",
  "content-length",
  "www-authenticate",
]);

/** A field name is a token: RFC 9110, section 5.6.2. */
const token = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;

/**
 * The names of the headers that are stored and replayed, in lower case.
 *
 * @param replayHeaders what is added to the package's own list.
 * @throws InvalidOptionError for anything but an array of header names, and for a header that must
 * not be repeated: `Set-Cookie`, those of the connection, `Date`, `Content-Length` and
 * `WWW-Authenticate`.
 */
export function resolveStoredHeaders(
  replayHeaders: readonly string[] | undefined,
): ReadonlySet<string> {
  if (replayHeaders === undefined) return new Set(always);
  const option = "idempotency.replayHeaders";
  if (!Array.isArray(replayHeaders)) {
    throw invalidOption(option, "an array of header names", replayHeaders);
  }
  for (const name of replayHeaders) {
    if (typeof name !== "string" || !token.test(name)) {
      throw invalidOption(option, "an array of header names", name);
    }
    if (never.has(name.toLowerCase())) {
      throw new InvalidOptionError(
        `${option}: expected headers that belong to the answer itself, got ${describe(name)}, which is never repeated`,
      );
    }
  }
  return new Set([...always, ...replayHeaders.map((name) => name.toLowerCase())]);
}

/**
 * The headers of a record that may be repeated, with lower-case names: a handler that completes by
 * itself, or another writer, may have recorded others.
 */
export function listedHeaders(stored: ReadonlySet<string>, headers: AnswerHeaders): AnswerHeaders {
  return pickFromObject(stored, headers);
}

/** The headers that a replay sets. `Vary` is added to: outer middleware has set its own. */
export function headersToRepeat(
  res: Pick<ServerResponse, "getHeader">,
  headers: AnswerHeaders,
): [name: string, value: string | string[]][] {
  const entries = Object.entries(headers) as [string, string | string[]][];
  return entries.map(([name, value]) =>
    name === "vary" ? [name, union(res.getHeader(name), value)] : [name, value],
  );
}

/** The names of two lists, each once. */
function union(...lists: unknown[]): string {
  const names = lists.flat().flatMap((list) => String(list ?? "").split(","));
  const trimmed = names.map((name) => name.trim()).filter((name) => name !== "");
  return [...new Map(trimmed.map((name) => [name.toLowerCase(), name])).values()].join(", ");
}

/** What `writeHead` takes: an object, a flat array of names and values, or an array of pairs. */
export type GivenHeaders = Readonly<Record<string, unknown>> | readonly unknown[] | undefined;

/**
 * The headers of a response that are to be stored, with lower-case names, without a prototype.
 *
 * @param given the argument of `writeHead`. It replaces what the response has of the same header;
 * within an array, a name that comes again adds a value.
 */
export function pickHeaders(
  stored: ReadonlySet<string>,
  res: Pick<ServerResponse, "getHeader" | "getHeaderNames">,
  given?: GivenHeaders,
): Picked {
  const picked: Picked = Object.create(null);
  // Not `getHeaders`, which copies all of them. These names are in lower case.
  for (const name of res.getHeaderNames()) {
    const text = stored.has(name) ? textOf(res.getHeader(name)) : undefined;
    if (text !== undefined) picked[name] = text;
  }
  if (given === undefined || given === null) return picked;
  if (!isList(given)) return Object.assign(picked, pickFromObject(stored, given));
  const isLastOnly = isNode20 && !("stream" in res) && res.getHeaderNames().length > 0;
  return Object.assign(picked, pickFromList(stored, given, isLastOnly));
}

/** Of equal names in a list, Node.js 20 sends the last one where the response has any header. */
const isNode20 = process.version.startsWith("v20.");

type Picked = Record<string, string | string[]>;

function pickFromObject(
  stored: ReadonlySet<string>,
  object: Readonly<Record<string, unknown>>,
): Picked {
  const picked: Picked = Object.create(null);
  for (const name of Object.keys(object)) {
    const key = name.toLowerCase();
    const text = stored.has(key) ? textOf(object[name]) : undefined;
    if (text !== undefined) picked[key] = text;
  }
  return picked;
}

function pickFromList(
  stored: ReadonlySet<string>,
  list: readonly unknown[],
  isLastOnly: boolean,
): Picked {
  const picked: Picked = Object.create(null);
  for (const [name, value] of pairsOf(list)) {
    const key = String(name).toLowerCase();
    const text = stored.has(key) ? textOf(value) : undefined;
    if (text === undefined) continue;
    const earlier = picked[key];
    picked[key] = earlier === undefined || isLastOnly ? text : [earlier, text].flat();
  }
  return picked;
}

function textOf(value: unknown): string | string[] | undefined {
  if (value === undefined || value === null) return undefined;
  return Array.isArray(value) ? value.map(String) : String(value);
}

function isList(given: NonNullable<GivenHeaders>): given is readonly unknown[] {
  return Array.isArray(given);
}

function pairsOf(list: readonly unknown[]): (readonly unknown[])[] {
  if (Array.isArray(list[0])) return list as (readonly unknown[])[];
  return Array.from({ length: list.length / 2 }, (_, i) => [list[2 * i], list[2 * i + 1]]);
}
