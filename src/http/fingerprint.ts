import { NoFingerprintError } from "../errors.ts";
import { hash22 } from "../lock/submission.ts";

/** Deeper than any order, and far from the depth at which the recursion overflows the stack. */
const maxDepth = 64;

/** Equal for equal payloads of one id, unrelated between two ids. */
export function fingerprintOf(idHash: string, value: unknown): string {
  return hash22(`${idHash}:${canonicalJson(value)}`);
}

/**
 * One text for all spellings of the same JSON: as `JSON.stringify`, with keys sorted by code unit
 * (RFC 8785). Bytes are `x` and base64, which is not JSON, so they equal no string and no array.
 *
 * @throws NoFingerprintError for a value that JSON cannot show (nothing, a bigint, a `Map`, a
 * promise, a circle), and, with status 422, for one nested deeper than 64 levels.
 */
export function canonicalJson(value: unknown): string {
  const text = write(value, 0);
  if (text !== undefined) return text;
  throw new NoFingerprintError(
    `the fingerprint: expected JSON, a string or bytes, got ${typeof value === "object" ? "an object whose toJSON returns nothing" : typeof value}`,
  );
}

/** Returns `undefined` for a value that JSON lacks: left out of an object, `null` in an array. */
function write(value: unknown, depth: number): string | undefined {
  if (typeof value === "string") return quote(value);
  if (value === null) return "null";
  // Infinity, which JSON.parse makes of 1e400, is not `null`.
  if (typeof value === "number") return `${value}`;
  if (ArrayBuffer.isView(value)) {
    return `x${Buffer.from(value.buffer, value.byteOffset, value.byteLength).toString("base64")}`;
  }
  const mayShow = typeof value === "bigint" || (typeof value === "object" && value !== null);
  const shower = (mayShow ? value : {}) as { toJSON?: unknown };
  const shown: unknown = typeof shower.toJSON === "function" ? shower.toJSON() : value;
  if (typeof shown === "bigint") {
    throw new NoFingerprintError("the fingerprint: a bigint is not JSON; make it a string");
  }
  if (typeof shown !== "object" || shown === null) return JSON.stringify(shown);
  if (depth === maxDepth) throw tooDeep(shown);
  let members = "";
  if (Array.isArray(shown)) {
    // Not `map`, which skips the holes of an array: a hole is `null`, too.
    for (const each of shown) members += `,${write(each, depth + 1) ?? "null"}`;
    return `[${members.slice(1)}]`;
  }
  const keys = Object.keys(shown);
  if (keys.length === 0 && !isPlain(shown)) {
    // A Map, a Set, a promise: all of them would be `{}`, and equal to each other.
    throw new NoFingerprintError(
      "the fingerprint: expected JSON, got an object without members that is no plain object, such as a Map or a promise. Return its content as JSON",
    );
  }
  for (const key of keys.sort()) {
    const text = write((shown as Record<string, unknown>)[key], depth + 1);
    if (text !== undefined) members += `${members && ","}${quote(key)}:${text}`;
  }
  return `{${members}}`;
}

function tooDeep(value: object): NoFingerprintError {
  try {
    JSON.stringify(value);
  } catch (error) {
    // The stack overflows where a client has sent the depth. It cannot send a circle.
    if (!(error instanceof RangeError)) {
      return new NoFingerprintError(
        'the fingerprint: its payload is in a circle, so a parser has left more than the values that the client sent. Let it leave values alone (attachFieldsToBody: "keyValues" of @fastify/multipart), or set idempotency.fingerprint',
      );
    }
  }
  const text = `the fingerprint: its payload is nested deeper than ${maxDepth} levels`;
  return new NoFingerprintError(text, { status: 422 });
}

/** Quotes as JSON.stringify does, in half the time where no character has to be escaped. */
function quote(text: string): string {
  return /^[ !#-[\]-~]*$/.test(text) ? `"${text}"` : JSON.stringify(text);
}

/** Whether the prototype is `null` or the `Object.prototype` of any realm, which has none. */
export function isPlain(object: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(object);
  return prototype === null || Object.getPrototypeOf(prototype) === null;
}

/** Not by the framework: Koa's parser takes the square of the length, most others stop at 1 000. */
export function queryOf(url: string): unknown {
  const [, query = ""] = /\?(.*)/s.exec(url) ?? [];
  return fieldsOf(query) ?? query;
}

/** One value, or all of a name; `undefined` for a text that does not decode. */
export function fieldsOf(text: string): Record<string, string | string[]> | undefined {
  try {
    // As a whole: where a name or value does not decode, Node.js takes 5 µs for each of them.
    decodeURIComponent(text);
  } catch {
    return undefined;
  }
  const values: Record<string, string | string[]> = Object.create(null);
  for (const [name, value] of new URLSearchParams(text)) {
    const earlier = values[name];
    if (earlier === undefined) values[name] = value;
    else if (Array.isArray(earlier)) earlier.push(value);
    else values[name] = [earlier, value];
  }
  return values;
}
