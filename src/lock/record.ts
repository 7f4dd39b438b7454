import { InvalidValueError } from "../errors.ts";
import { checkOptionNames, describe, invalidOption } from "../validation.ts";
import type { CompletedAnswer, RecordBytes, ToldAnswer } from "./store.ts";

/** Header names and their values. */
export type AnswerHeaders = Readonly<Record<string, string | readonly string[]>>;

/** The answer of a submission, as a later acquire of the submission returns it. */
export interface StoredAnswer {
  /** 100 to 599. */
  readonly status: number;
  /** An object without a prototype. */
  readonly headers: AnswerHeaders;
  /** `undefined` where the body was not kept; a body without bytes is an empty array. */
  readonly body?: Uint8Array | undefined;
  /**
   * The value that `once` has kept, and not an HTTP answer: then `status` is 100, and there are no
   * headers and no body. A value that `once` could not keep leaves the status alone.
   */
  readonly returned?: { readonly value: unknown } | undefined;
}

/** The answer of a submission, to be kept in its record. */
export interface AnswerToStore {
  /** A whole number from 100 to 599. */
  readonly status: number;
  /** @defaultValue none */
  readonly headers?: AnswerHeaders | undefined;
  /** A string is kept as UTF-8. Without a body, a retry only learns status and headers. */
  readonly body?: string | Uint8Array | undefined;
}

/** The content of a record: an HTTP answer, or the value of `once`. */
export interface RecordContent extends AnswerToStore {
  /** The value as JSON, and `""` for `undefined`. */
  readonly json?: string | undefined;
}

/** @throws InvalidOptionError naming the member, what was expected and what came. */
export function checkAnswer(answer: AnswerToStore): void {
  checkOptionNames("answer", answer, ["status", "headers", "body"]);
  const { status, headers = {}, body } = answer;
  if (!isStatus(status)) {
    throw invalidOption("answer.status", "a whole number from 100 to 599", status);
  }
  if (!isRecord(headers)) {
    throw invalidOption("answer.headers", "a plain object of names and values", headers);
  }
  for (const name of Object.keys(headers)) {
    if (!isHeaderValue(headers[name])) {
      const option = `answer.headers[${describe(name)}]`;
      throw invalidOption(option, "a string or an array of strings", headers[name]);
    }
  }
  if (body !== undefined && typeof body !== "string" && !ArrayBuffer.isView(body)) {
    throw invalidOption("answer.body", "a string, bytes (Uint8Array) or undefined", body);
  }
}

function isStatus(status: unknown): status is number {
  return Number.isInteger(status) && (status as number) >= 100 && (status as number) <= 599;
}

/** Not for an iterable: a `Headers` or a `Map` has no members, and its headers would be dropped. */
function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !(Symbol.iterator in value);
}

function isHeaderValue(value: unknown): boolean {
  if (Array.isArray(value)) return value.every((line) => typeof line === "string");
  return typeof value === "string";
}

/** Its version, fingerprint, owner id, and the sign by which scripts know a record. */
const head = /^1[\w-]{22}[0-9a-f-]{36}=/;
const headLength = 60;
/** The length of the description that is behind the head, in bytes, as hexadecimal digits. */
const lengthDigits = 6;

/**
 * The bytes of a record: its head, the length of a description, the description, and the body as it
 * is. The description is JSON with short names, because a shop keeps millions: `s` is the status, `t`
 * the store's time, `h` the headers, `b` the body's length in bytes, absent without a body. With `v`
 * the body is the value of `once` as JSON, and empty for `undefined`.
 *
 * @returns text where the body is text: clients write that faster than bytes.
 */
export function encodeRecord(
  fingerprint: string,
  ownerId: string,
  { status, headers = {}, body: given, json }: RecordContent,
  createdMs: number,
): string | Buffer {
  const body = json ?? given;
  const b = typeof body === "string" ? Buffer.byteLength(body) : body?.byteLength;
  const v = json === undefined ? undefined : 1;
  const described = JSON.stringify({ s: status, t: Math.floor(createdMs), h: headers, b, v });
  const length = Buffer.byteLength(described).toString(16).padStart(lengthDigits, "0");
  const text = `1${fingerprint}${ownerId}=${length}${described}`;
  if (body === undefined || typeof body === "string") return text + (body ?? "");
  return Buffer.concat([Buffer.from(text), bytesOf(body)]);
}

/** The same memory. */
function bytesOf(text: RecordBytes): Buffer {
  if (typeof text === "string") return Buffer.from(text);
  return Buffer.from(text.buffer, text.byteOffset, text.byteLength);
}

/** Never throws. `undefined` for anything without the form that {@link encodeRecord} writes. */
export function decodeRecord(
  record: unknown,
): { createdMs: number; answer: StoredAnswer } | undefined {
  if (typeof record !== "string" && !(record instanceof Uint8Array)) return undefined;
  const bytes = bytesOf(record);
  const start = headLength + lengthDigits;
  if (!head.test(bytes.toString("latin1", 0, headLength))) return undefined;
  const length = Number(`0x${bytes.toString("latin1", headLength, start)}`);
  if (!(length >= 0)) return undefined;
  const { s: status, t, h, b, v } = parse(bytes.toString("utf8", start, start + length));
  const rest = bytes.subarray(start + length);
  const createdMs = Number.isSafeInteger(t) ? (t as number) : -1;
  if (!isStatus(status) || createdMs < 0 || (b ?? 0) !== rest.length) return undefined;
  if (!isRecord(h) || !Object.values(h).every(isHeaderValue)) return undefined;
  // Without a prototype, so that a header named `__proto__` is a header and nothing else.
  const headers: AnswerHeaders = Object.assign(Object.create(null), h);
  if (v === undefined) {
    return { createdMs, answer: { status, headers, body: b === undefined ? undefined : rest } };
  }
  const returned = parsedValue(rest.toString());
  return returned && { createdMs, answer: { status, headers, returned } };
}

function parse(json: string): { [name in "s" | "t" | "h" | "b" | "v"]?: unknown } {
  try {
    return Object(JSON.parse(json));
  } catch {
    return {};
  }
}

function parsedValue(json: string): StoredAnswer["returned"] {
  try {
    return { value: json === "" ? undefined : JSON.parse(json) };
  } catch {
    return undefined;
  }
}

/** `undefined` for foreign bytes. */
export function completedOf({
  record,
  storeTimeMs,
}: CompletedAnswer | ToldAnswer):
  | { readonly answer: StoredAnswer; readonly ageMs: number }
  | undefined {
  const decoded = decodeRecord(record);
  if (decoded === undefined) return undefined;
  return { answer: decoded.answer, ageMs: Math.max(0, storeTimeMs - decoded.createdMs) };
}

/** The longest value of `once` that is kept, as JSON in UTF-8. */
export const maxValueBytes = 1_048_576;

/**
 * Returns `""` for `undefined`, and an error for a value that JSON cannot say.
 *
 * @param consequence what has become of the submission, for the message.
 */
export function jsonOf(value: unknown, consequence: string): string | InvalidValueError {
  if (value === undefined) return "";
  let cause: unknown;
  try {
    const json: string | undefined = JSON.stringify(value);
    if (json !== undefined) return json;
  } catch (error) {
    cause = error;
  }
  const advice = `Return plain data: ${consequence}`;
  return new InvalidValueError(`work returned a value that JSON cannot say. ${advice}`, { cause });
}
