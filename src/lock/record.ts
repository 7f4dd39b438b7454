import { InvalidValueError } from "../errors.ts";
import { checkOptionNames, describe, invalidOption, warnOnce } from "../validation.ts";
import type { CallerCommand } from "./runtime.ts";
import { isSealed, type Seal, type Unreadable } from "./seal.ts";
import type { CompletedAnswer, RecordBytes, ToldAnswer } from "./store.ts";

/** Header names and their values. */
export type AnswerHeaders = Readonly<Record<string, string | readonly string[]>>;

/** The answer of a submission, as a later acquire of the submission returns it. */
export interface StoredAnswer {
  /** 100 to 599. */
  readonly status: number;
  /** An object; without a prototype if it has any header. */
  readonly headers: AnswerHeaders;
  /** `undefined` where the body was not kept; a body without bytes is an empty array. */
  readonly body?: Uint8Array | undefined;
  /**
   * The value that `once` has kept, if the record is not an HTTP answer: then `status` is 100,
   * without headers and body. If `once` could not keep its value, there is the status alone.
   */
  readonly returned?: { readonly value: unknown } | undefined;
  /** The submission was completed, and its record cannot be read: then `status` is 100. */
  readonly unreadable?: Unreadable | undefined;
}

/** The answer of a submission, to be kept in its record. */
export interface AnswerToStore {
  /** A whole number from 100 to 599. */
  readonly status: number;
  /** @defaultValue none */
  readonly headers?: AnswerHeaders | undefined;
  /** A string is kept as UTF-8. Without a body, a repeat only learns status and headers. */
  readonly body?: string | Uint8Array | undefined;
}

/** The content of a record: an HTTP answer, or the value of `once`. */
export interface RecordContent extends AnswerToStore {
  /** The value as JSON, and `""` for `undefined`. */
  readonly json?: string | undefined;
}

/** @throws InvalidOptionError that names the member, the expected values and the given one. */
export function checkAnswer(answer: AnswerToStore): void {
  checkOptionNames("answer", answer, ["status", "headers", "body"]);
  const { status, headers = {}, body } = answer;
  if (!isStatus(status)) {
    throw invalidOption("answer.status", "a whole number from 100 to 599", status);
  }
  if (!isObject(headers)) {
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

/** Refuses an iterable: a `Headers` or a `Map` has no members, so its headers would be dropped. */
function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !(Symbol.iterator in value);
}

function isHeaderValue(value: unknown): boolean {
  if (Array.isArray(value)) return value.every((line) => typeof line === "string");
  return typeof value === "string";
}

/** A record's version, fingerprint, owner id and `=`. Scripts know a record by version and `=`. */
const recordHead = /^1[\w-]{22}[0-9a-f-]{36}=/;
const headLength = 60;
/** How many hexadecimal digits behind the head give the description's length in bytes. */
const lengthDigits = 6;

type Place = Pick<CallerCommand, "key" | "submission"> & Partial<Pick<CallerCommand, "identity">>;

/**
 * The bytes of a record: its head, the length of a description, the description, and the body. The
 * description is JSON with short names, as a shop keeps millions of records: `s` is the status, `t`
 * the store's time, `h` the headers, `b` the body's length in bytes, absent without a body. With
 * `v`, the body is the value of `once` as JSON, empty for `undefined`. With a seal, all behind the
 * head is encrypted, and `i` is the submission's id, of which the store usually has only an HMAC.
 * @returns bytes with a seal or a body of bytes; else text, which clients write faster.
 */
export function encodeRecord(
  { key, ownerId, submission, identity }: Place & Pick<CallerCommand, "ownerId" | "identity">,
  { status, headers = {}, body: given, json }: RecordContent,
  createdMs: number,
  seal?: Seal,
): string | Buffer {
  const body = json ?? given;
  const b = typeof body === "string" ? Buffer.byteLength(body) : body?.byteLength;
  const v = json === undefined ? undefined : 1;
  const i = seal && identity?.id;
  const described = JSON.stringify({ s: status, t: Math.floor(createdMs), h: headers, b, v, i });
  const length = Buffer.byteLength(described).toString(16).padStart(lengthDigits, "0");
  const text = `1${submission?.fingerprint}${ownerId}=`;
  const open = length + described;
  if (seal !== undefined) {
    const content = Buffer.concat([Buffer.from(open), bufferOf(body ?? "")]);
    const sealed = seal.seal(content, boundTo({ key, submission }, text));
    return Buffer.concat([Buffer.from(text), sealed]);
  }
  if (body === undefined || typeof body === "string") return text + open + (body ?? "");
  return Buffer.concat([Buffer.from(text + open), bufferOf(body)]);
}

function boundTo({ key, submission }: Place, head: string): string {
  return `${key}\n${submission?.id}\n${head}`;
}

/** Bytes are not copied: the buffer shares their memory. */
function bufferOf(text: RecordBytes): Buffer {
  if (typeof text === "string") return Buffer.from(text);
  return Buffer.from(text.buffer, text.byteOffset, text.byteLength);
}

export interface ReadRecord {
  /** When the answer was recorded, by the store's clock in ms; 0 where nothing can be read. */
  readonly createdMs: number;
  readonly answer: StoredAnswer;
  /** The submission's id. Only a sealed record contains it: its key usually has only an HMAC. */
  readonly id?: string | undefined;
}

/** Never throws. A record without the form that {@link encodeRecord} writes is unreadable. */
export function decodeRecord(record: RecordBytes, place: Place, seal?: Seal): ReadRecord {
  const bytes = bufferOf(record);
  const text = bytes.toString("latin1", 0, headLength);
  let content = bytes.subarray(headLength);
  if (isSealed(content)) {
    const opened = seal?.open(content, boundTo(place, text)) ?? "sealed with another key";
    if (typeof opened === "string") return unreadable(opened);
    content = opened;
  }
  return (recordHead.test(text) && decodeContent(content)) || unreadable("damaged");
}

export function ownerOf(record: RecordBytes): string {
  return bufferOf(record).toString("latin1", 23, 59);
}

function unreadable(why: Unreadable): ReadRecord {
  return { createdMs: 0, answer: { status: 100, headers: {}, unreadable: why } };
}

function decodeContent(bytes: Buffer): ReadRecord | undefined {
  const length = Number(`0x${bytes.toString("latin1", 0, lengthDigits)}`);
  if (!(length >= 0)) return undefined;
  const end = lengthDigits + length;
  const described = valueIn(bytes.toString("utf8", lengthDigits, end));
  const { s: status, t, h, b, v, i } = Object(described?.value) as Description;
  const rest = bytes.subarray(end);
  const createdMs = Number.isSafeInteger(t) ? (t as number) : -1;
  if (!isStatus(status) || createdMs < 0 || (b ?? 0) !== rest.length) return undefined;
  if (!isObject(h) || !Object.values(h).every(isHeaderValue)) return undefined;
  const id = typeof i === "string" ? i : undefined;
  // The headers have no prototype, so that one named `__proto__` is a header and nothing else.
  const headers: AnswerHeaders = Object.assign(Object.create(null), h);
  if (v === undefined) {
    return { createdMs, id, answer: { status, headers, body: b === undefined ? undefined : rest } };
  }
  const returned = valueIn(rest.toString());
  return returned && { createdMs, id, answer: { status, headers, returned } };
}

type Description = { readonly [name in "s" | "t" | "h" | "b" | "v" | "i"]?: unknown };

function valueIn(json: string): StoredAnswer["returned"] {
  try {
    return { value: json === "" ? undefined : JSON.parse(json) };
  } catch {
    return undefined;
  }
}

/** An answer that was found, and the submission's id as the shop's database has it. */
export interface FoundAnswer {
  readonly answer: StoredAnswer;
  readonly ageMs: number;
  readonly completedAt: number;
  readonly id: string;
}

export function completedOf(
  { kind, record, storeTimeMs }: CompletedAnswer | ToldAnswer,
  place: Place,
  seal: Seal | undefined,
): FoundAnswer {
  const { submission, identity = submission } = place;
  const { answer, createdMs, id = identity?.id ?? "" } = decodeRecord(record, place, seal);
  if (answer.unreadable === undefined) {
    return { answer, ageMs: Math.max(0, storeTimeMs - createdMs), completedAt: createdMs, id };
  }
  // A told answer is not kept: only the waiting repeat is refused, and the next one runs.
  if (kind === "completed") {
    warnOnce(
      "SUBMIT_LOCK_UNREADABLE_RECORD",
      `a submission was completed, and its record cannot be read (${answer.unreadable}): its repeats are refused, and none runs. ${remedies[answer.unreadable]}`,
    );
  }
  return { answer, ageMs: 0, completedAt: storeTimeMs, id };
}

/** Advice to an operator, for a process warning. */
const remedies: Readonly<Record<Unreadable, string>> = {
  "sealed with another key": "Add the key that sealed it to seal.keys of every process",
  damaged: "Look for the order, then forget the record, or let it run out",
};

/** The longest value of `once` that is kept, as JSON in UTF-8. */
export const maxValueBytes = 1_048_576;

/** Returns a value's JSON, `""` for `undefined`, or an error with `consequence` if it has none. */
export function jsonOf(value: unknown, consequence: string): string | InvalidValueError {
  if (value === undefined) return "";
  let cause: unknown;
  try {
    const json: string | undefined = JSON.stringify(value);
    if (json !== undefined) return json;
  } catch (error) {
    cause = error;
  }
  const advice = `${consequence}. Return plain data`;
  return new InvalidValueError(`work returned a value that JSON cannot say. ${advice}`, { cause });
}
