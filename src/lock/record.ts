import { isUtf8 } from "node:buffer";
import { InvalidValueError } from "../errors.ts";
import { checkOptionNames, describe, invalidOption } from "../validation.ts";
import type { CompletedAnswer } from "./store.ts";

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

/** The layout's version, fingerprint and owner id, where the scripts compare them by position. */
const head = /^1[\w-]{22}[0-9a-f-]{36}\{/;
const headLength = 59;

/**
 * The text of a record. Short names, because a shop keeps millions: `s` is the status, `t` the
 * store's time, `h` the headers, and `e` the form of the body `b`: `u` text, if it is valid UTF-8,
 * `b` base64, `-` no body. `v` is an array with the value of `once`, and empty for `undefined`.
 */
export function encodeRecord(
  fingerprint: string,
  ownerId: string,
  { status, headers = {}, body, json }: RecordContent,
  createdMs: number,
): string {
  // Not as one object: JSON of a text alone takes half the time.
  const head = `{"s":${status},"t":${Math.floor(createdMs)},"h":${JSON.stringify(headers)}`;
  const value = json === undefined ? "" : `,"v":[${json}]`;
  return `1${fingerprint}${ownerId}${head},${encodeBody(body)}${value}}`;
}

/**
 * Text as JSON, or as base64 where it has so many quotation marks or control characters that JSON
 * would be longer: up to six times. What a client sends must not fill Redis beyond the bound.
 */
function encodeBody(body: AnswerToStore["body"]): string {
  if (body === undefined) return '"e":"-"';
  const bytes =
    typeof body === "string"
      ? undefined
      : Buffer.from(body.buffer, body.byteOffset, body.byteLength);
  if (bytes === undefined || isUtf8(bytes)) {
    const text = bytes?.toString() ?? (body as string);
    const json = JSON.stringify(text);
    if (json.length <= 2 + (4 / 3) * text.length + 4) return `"e":"u","b":${json}`;
  }
  return `"e":"b","b":"${(bytes ?? Buffer.from(body as string)).toString("base64")}"`;
}

/** Never throws. `undefined` for anything without the form that {@link encodeRecord} writes. */
export function decodeRecord(
  text: unknown,
): { createdMs: number; answer: StoredAnswer } | undefined {
  if (typeof text !== "string" || !head.test(text)) return undefined;
  const { s: status, t, h, e, b, v } = parse(text.slice(headLength));
  const createdMs = Number.isSafeInteger(t) ? (t as number) : -1;
  const body = decodeBody(e, b);
  if (!isStatus(status) || createdMs < 0 || body === "unreadable") return undefined;
  if (!isRecord(h) || !Object.values(h).every(isHeaderValue)) return undefined;
  if (v !== undefined && !Array.isArray(v)) return undefined;
  // Without a prototype, so that a header named `__proto__` is a header and nothing else.
  const headers: AnswerHeaders = Object.assign(Object.create(null), h);
  const returned = v === undefined ? undefined : { value: v[0] };
  return { createdMs, answer: { status, headers, body, returned } };
}

function parse(json: string): { [name in "s" | "t" | "h" | "e" | "b" | "v"]?: unknown } {
  try {
    return JSON.parse(json);
  } catch {
    return {};
  }
}

function decodeBody(encoding: unknown, text: unknown): Buffer | undefined | "unreadable" {
  if (encoding === "-") return undefined;
  if (typeof text !== "string") return "unreadable";
  if (encoding === "u") return Buffer.from(text, "utf8");
  const bytes = Buffer.from(text, "base64");
  // Node.js skips characters that are not base64: such a text does not come out equal.
  return encoding === "b" && bytes.toString("base64") === text ? bytes : "unreadable";
}

/** `undefined` for a foreign text. */
export function completedOf({
  record,
  storeTimeMs,
}: CompletedAnswer): { readonly answer: StoredAnswer; readonly ageMs: number } | undefined {
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
