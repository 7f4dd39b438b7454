import { NoFingerprintError } from "../errors.ts";
import { hash22 } from "../lock/submission.ts";

/** Far beyond any order, and far from what a stack can hold. */
const maxDepth = 64;

/**
 * 22 characters that are equal for equal payloads of one submission, and tell nothing about the
 * payload without the submission's id.
 *
 * @param idHash the hash of the submission's id.
 * @param value JSON (also nested with `Uint8Array`), a string or bytes.
 * @throws NoFingerprintError for `undefined` and for whatever {@link canonicalJson} refuses: a
 * fingerprint of nothing would let every payload pass for the first one.
 */
export function fingerprintOf(idHash: string, value: unknown): string {
  return hash22(`${idHash}:${canonicalJson(value)}`);
}

/**
 * One text for all spellings of the same JSON: keys sorted by code unit and numbers as JavaScript
 * prints them, as in RFC 8785; arrays in order; `toJSON` called, and members that are `undefined`
 * left out, as `JSON.stringify` does; `null` is a value. Bytes are written as `x` and base64, which
 * is no JSON, so they equal no string and no array.
 *
 * @throws NoFingerprintError for nothing at all (`undefined`, a function, a symbol), a bigint
 * without `toJSON`, an object such as a `Map` or a promise whose content JSON cannot show, and
 * what is nested deeper than 64 levels, circles among it.
 */
export function canonicalJson(value: unknown): string {
  const text = write(value, 0);
  if (text !== undefined) return text;
  throw new NoFingerprintError(
    `the fingerprint: expected JSON, a string or bytes, got ${typeof value === "object" ? "an object whose toJSON returns nothing" : typeof value}`,
  );
}

/** `undefined` is what JSON cannot hold: left out of an object, `null` in an array. */
function write(value: unknown, depth: number): string | undefined {
  if (typeof value === "string") return quote(value);
  if (Number.isFinite(value)) return `${value}`;
  if (ArrayBuffer.isView(value)) {
    return `x${Buffer.from(value.buffer, value.byteOffset, value.byteLength).toString("base64")}`;
  }
  const shown = hasToJson(value) ? value.toJSON() : value;
  if (typeof shown === "bigint") {
    throw new NoFingerprintError("the fingerprint: a bigint is no JSON; make it a string");
  }
  if (typeof shown !== "object" || shown === null) return JSON.stringify(shown);
  if (depth === maxDepth) {
    throw new NoFingerprintError(
      `the fingerprint: its payload is nested deeper than ${maxDepth} levels, or in a circle`,
      // A client can send that, so it is no fault of the server.
      { status: 422 },
    );
  }
  if (Array.isArray(shown)) {
    let elements = "";
    for (let i = 0; i < shown.length; i += 1) {
      elements += `${i === 0 ? "" : ","}${write(shown[i], depth + 1) ?? "null"}`;
    }
    return `[${elements}]`;
  }
  return writeObject(shown as Record<string, unknown>, depth);
}

function writeObject(object: Record<string, unknown>, depth: number): string {
  // Own keys only; `__proto__`, which JSON.parse makes an own one, is a key like any other.
  const keys = Object.keys(object);
  if (keys.length === 0 && !isPlain(object)) {
    // A Map, a Set, a promise: all of them would be `{}`, and equal to each other.
    throw new NoFingerprintError(
      "the fingerprint: expected JSON, got an object without members that is no plain object, such as a Map or a promise",
    );
  }
  let members = "";
  for (const key of keys.sort()) {
    const text = write(object[key], depth + 1);
    if (text !== undefined) members += `${members && ","}${quote(key)}:${text}`;
  }
  return `{${members}}`;
}

/** What JSON.stringify does, at half its price where nothing is to be escaped. */
function quote(text: string): string {
  return /^[ !#-[\]-~]*$/.test(text) ? `"${text}"` : JSON.stringify(text);
}

function hasToJson(value: unknown): value is { toJSON(): unknown } {
  if ((typeof value !== "object" || value === null) && typeof value !== "bigint") return false;
  return typeof (value as { toJSON?: unknown }).toJSON === "function";
}

/** The prototype has none of its own, so it is `Object.prototype`, of whichever realm. */
export function isPlain(object: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(object);
  return prototype === null || Object.getPrototypeOf(prototype) === null;
}
