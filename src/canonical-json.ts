import { types } from "node:util";
import { NoFingerprintError } from "./errors.ts";

/** Deeper than any order, and far from the depth at which the recursion overflows the stack. */
const maxDepth = 64;

/** How many characters {@link take} counts before it stops the sort: 1 MB would take 0.25 s. */
const maxSorted = 65_536;

const tooLong = Symbol("longer than the sorted form");

/**
 * One text for all spellings of the same JSON: as `JSON.stringify`, with keys sorted by code unit
 * (RFC 8785). Bytes are `x` and base64, which is not JSON, so they equal no string and no array. In
 * a text of more than 65 536 characters, keys may be unsorted.
 * @throws NoFingerprintError for a value that JSON cannot show (`undefined`, a bigint, a `Map`, a
 * promise, an object that contains itself), and, with status 422, for what the client has sent:
 * nesting deeper than 64 levels, a number that is not finite, an invalid date.
 */
export function canonicalJson(value: unknown): string {
  const text = sortedJson(value) ?? (hasBytes(value, 0) ? print(value, 0) : JSON.stringify(value));
  if (text !== undefined) return text;
  throw new NoFingerprintError(
    `the fingerprint: expected JSON, a string or bytes, got ${typeof value === "object" ? "an object whose toJSON returns nothing" : typeof value}`,
  );
}

function sortedJson(value: unknown): string | undefined {
  try {
    return print(value, 0, { left: maxSorted });
  } catch (error) {
    if (error !== tooLong) throw error;
    return undefined;
  }
}

/**
 * @param sorted how much more {@link take} may count before it throws; absent for unsorted keys.
 * @returns `undefined` for a value that JSON lacks: left out of an object, `null` in an array.
 */
function print(value: unknown, depth: number, sorted?: { left: number }): string | undefined {
  if (typeof value === "string") {
    take(sorted, value.length);
    return quote(value);
  }
  if (ArrayBuffer.isView(value)) {
    take(sorted, value.byteLength);
    return `x${Buffer.from(value.buffer, value.byteOffset, value.byteLength).toString("base64")}`;
  }
  take(sorted, 2);
  const shown = shownOf(value);
  if (typeof shown !== "object" || shown === null) return JSON.stringify(shown);
  if (depth === maxDepth) throw tooDeep(shown);
  let members = "";
  if (Array.isArray(shown)) {
    // `map` would skip the holes of an array: a hole is `null`, too.
    for (const each of shown) members += `,${print(each, depth + 1, sorted) ?? "null"}`;
    return `[${members.slice(1)}]`;
  }
  const keys = Object.keys(shown);
  take(sorted, keys.length);
  if (sorted !== undefined) keys.sort();
  for (const key of keys) {
    take(sorted, key.length);
    const text = print((shown as Record<string, unknown>)[key], depth + 1, sorted);
    if (text !== undefined) members += `${members && ","}${quote(key)}:${text}`;
  }
  return `{${members}}`;
}

function take(sorted: { left: number } | undefined, length: number): void {
  if (sorted === undefined) return;
  sorted.left -= length;
  if (sorted.left < 0) throw tooLong;
}

/** Whether a value contains bytes. Throws for each value for which `print` throws, in less time. */
function hasBytes(value: unknown, depth: number): boolean {
  if (typeof value === "string" || value === null) return false;
  if (ArrayBuffer.isView(value)) return true;
  const shown = shownOf(value);
  if (typeof shown !== "object" || shown === null) return false;
  if (depth === maxDepth) throw tooDeep(shown);
  let found = false;
  for (const each of Array.isArray(shown) ? shown : Object.values(shown)) {
    if (hasBytes(each, depth + 1)) found = true;
  }
  return found;
}

/**
 * Returns the value that JSON writes. Refuses a bigint, and a value that JSON would write like a
 * different value: the two values would have one fingerprint.
 */
function shownOf(value: unknown): unknown {
  const mayShow = typeof value === "bigint" || (typeof value === "object" && value !== null);
  const shower = (mayShow ? value : {}) as { toJSON?: unknown };
  const shown: unknown = typeof shower.toJSON === "function" ? shower.toJSON() : value;
  if (typeof shown === "bigint") {
    throw new NoFingerprintError("the fingerprint: a bigint is not JSON; make it a string");
  }
  if (typeof shown === "number" && !Number.isFinite(shown)) {
    // JSON.parse makes Infinity of every number from 1e309 on, and JSON would show `null`.
    const text = "the fingerprint: a number is not finite, such as 1e400, so JSON cannot show it";
    throw new NoFingerprintError(text, { status: 422 });
  }
  if (shown === null && value !== null) {
    if (!types.isDate(value)) {
      throw new NoFingerprintError(
        "the fingerprint: expected JSON, got an object that is null there",
      );
    }
    // A parser that makes dates has left this one of what the client sent.
    const text = "the fingerprint: a date is not valid, so JSON cannot show it";
    throw new NoFingerprintError(text, { status: 422 });
  }
  if (typeof shown !== "object" || shown === null || Array.isArray(shown)) return shown;
  const isEmpty = !isPlain(shown) && Object.keys(shown).length === 0;
  if (isEmpty || types.isMap(shown) || types.isSet(shown)) {
    // JSON would write `{}` for every such object, and different contents would be equal.
    throw new NoFingerprintError(
      "the fingerprint: expected JSON, got an object whose content is not in its members, such as a Map, a Set or a promise. Return its content as JSON",
    );
  }
  return shown;
}

function tooDeep(value: object): NoFingerprintError {
  try {
    JSON.stringify(value);
  } catch (error) {
    // A RangeError means deep nesting, which clients can send; others a circle, which parsers make.
    if (!(error instanceof RangeError)) {
      return new NoFingerprintError(
        'the fingerprint: its payload is in a circle, so a parser has left more than the values that the client sent. Let it leave values alone (attachFieldsToBody: "keyValues" of @fastify/multipart), or set idempotency.fingerprint',
      );
    }
  }
  const text = `the fingerprint: its payload is nested deeper than ${maxDepth} levels`;
  return new NoFingerprintError(text, { status: 422 });
}

/** Quotes as JSON.stringify does, in half the time for ASCII in which nothing has to be escaped. */
function quote(text: string): string {
  return /^[ !#-[\]-~]*$/.test(text) ? `"${text}"` : JSON.stringify(text);
}

/** Whether the prototype is `null` or any realm's `Object.prototype` (which has no prototype). */
export function isPlain(object: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(object);
  return prototype === null || Object.getPrototypeOf(prototype) === null;
}
