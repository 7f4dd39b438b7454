import { isUtf8 } from "node:buffer";
import {
  type AnswerHeaders,
  type AnswerToStore,
  isHeaders,
  isStatus,
  type StoredAnswer,
} from "./answer.ts";

/** What was kept of a submission that was answered. */
export interface StoredRecord {
  /** 22 characters of base64url; dashes where there is none. */
  readonly fingerprint: string;
  /** The lease's under which it was answered. */
  readonly ownerId: string;
  /** By the store's clock, in milliseconds. */
  readonly createdMs: number;
  readonly answer: StoredAnswer;
}

/**
 * The layout's version, the fingerprint and the owner id, each at a fixed place, where the scripts
 * compare them by position.
 */
const head = /^1([\w-]{22})([0-9a-f-]{36})\{/;
const headLength = 59;

/** Short names, because a shop keeps millions of these. */
interface Content {
  /** Status. */
  readonly s: number;
  /** When it was created: whole milliseconds of the store's clock. */
  readonly t: number;
  readonly h: AnswerHeaders;
  /** How the body is written: as text that is its UTF-8, in base64, or not at all. */
  readonly e: "u" | "b" | "-";
  /** JSON leaves it out where there is none. */
  readonly b: string | undefined;
}

/**
 * The text of a record. Bytes that are valid UTF-8 lie in it as text, a byte order mark included;
 * all others as base64.
 *
 * @param fingerprint 22 characters.
 * @param ownerId 36 characters.
 * @param createdMs the store's time; a fraction is cut off.
 */
export function encodeRecord(
  fingerprint: string,
  ownerId: string,
  answer: AnswerToStore,
  createdMs: number,
): string {
  const { e, b } = encodeBody(answer.body);
  const content: Content = {
    s: answer.status,
    t: Math.floor(createdMs),
    h: answer.headers ?? {},
    e,
    b,
  };
  return `1${fingerprint}${ownerId}${JSON.stringify(content)}`;
}

function encodeBody(body: AnswerToStore["body"]): Pick<Content, "e" | "b"> {
  if (body === undefined) return { e: "-", b: undefined };
  if (typeof body === "string") return { e: "u", b: body };
  const bytes = Buffer.from(body.buffer, body.byteOffset, body.byteLength);
  return isUtf8(bytes)
    ? { e: "u", b: bytes.toString("utf8") }
    : { e: "b", b: bytes.toString("base64") };
}

/** Never throws. `undefined` for whatever {@link encodeRecord} did not write. */
export function decodeRecord(text: unknown): StoredRecord | undefined {
  if (typeof text !== "string") return undefined;
  const [, fingerprint, ownerId] = head.exec(text) ?? [];
  if (fingerprint === undefined || ownerId === undefined) return undefined;
  const { s: status, t: createdMs, h, e, b } = parse(text.slice(headLength));
  const headers = copyHeaders(h);
  const body = decodeBody(e, b);
  if (!isStatus(status) || !isTime(createdMs) || !headers || body === "unreadable") {
    return undefined;
  }
  return { fingerprint, ownerId, createdMs, answer: { status, headers, body } };
}

/** Only read by name, so that nothing of somebody else's text gets further than its five members. */
function parse(json: string): Partial<Record<keyof Content, unknown>> {
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
  if (encoding !== "b") return "unreadable";
  const bytes = Buffer.from(text, "base64");
  // Node.js skips what is not base64, and would make a body of rubbish.
  return bytes.toString("base64") === text ? bytes : "unreadable";
}

/** Without a prototype, so that a header named `__proto__` is a header and nothing else. */
function copyHeaders(headers: unknown): AnswerHeaders | undefined {
  if (!isHeaders(headers)) return undefined;
  return Object.assign(Object.create(null), headers);
}

function isTime(time: unknown): time is number {
  return Number.isSafeInteger(time) && (time as number) >= 0;
}
