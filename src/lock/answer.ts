import { checkOptionNames, describe, invalidOption } from "../validation.ts";

/** Header names and what they hold. */
export type AnswerHeaders = Readonly<Record<string, string | readonly string[]>>;

/** The answer of a submission, as a retry is given it. */
export interface StoredAnswer {
  /** 100 to 599. */
  readonly status: number;
  /** An object without a prototype. */
  readonly headers: AnswerHeaders;
  /** `undefined` where the body was not kept; a body without bytes is an empty array. */
  readonly body?: Uint8Array | undefined;
}

/** An answer that is to be kept. */
export interface AnswerToStore {
  /** A whole number from 100 to 599. */
  readonly status: number;
  /** @defaultValue none */
  readonly headers?: AnswerHeaders | undefined;
  /** A string is kept as UTF-8. Without a body, a retry only learns status and headers. */
  readonly body?: string | Uint8Array | undefined;
}

const names = ["status", "headers", "body"] as const satisfies readonly (keyof AnswerToStore)[];

/** @throws InvalidOptionError naming the member, what was expected and what came. */
export function checkAnswer(answer: AnswerToStore): void {
  checkOptionNames("answer", answer, names);
  const { status, headers, body } = answer;
  if (!isStatus(status)) {
    throw invalidOption("answer.status", "a whole number from 100 to 599", status);
  }
  if (headers !== undefined) checkHeaders(headers);
  if (body !== undefined && typeof body !== "string" && !ArrayBuffer.isView(body)) {
    throw invalidOption("answer.body", "a string, bytes (Uint8Array) or undefined", body);
  }
}

function checkHeaders(headers: unknown): void {
  if (!isRecord(headers)) {
    throw invalidOption("answer.headers", "a plain object of names and values", headers);
  }
  for (const name of Object.keys(headers)) {
    if (!isHeaderValue(headers[name])) {
      const option = `answer.headers[${describe(name)}]`;
      throw invalidOption(option, "a string or an array of strings", headers[name]);
    }
  }
}

export function isStatus(status: unknown): status is number {
  return Number.isInteger(status) && (status as number) >= 100 && (status as number) <= 599;
}

export function isHeaders(headers: unknown): headers is AnswerHeaders {
  return isRecord(headers) && Object.values(headers).every(isHeaderValue);
}

/** A `Headers` or a `Map` shows no member: it would be kept as no headers at all. */
function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !(Symbol.iterator in value);
}

function isHeaderValue(value: unknown): boolean {
  return isString(value) || (Array.isArray(value) && value.every(isString));
}

function isString(value: unknown): value is string {
  return typeof value === "string";
}
