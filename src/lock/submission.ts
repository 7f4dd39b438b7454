import * as crypto from "node:crypto";
import { canonicalJson } from "../canonical-json.ts";
import { InvalidOptionError } from "../errors.ts";
import {
  checkMs,
  checkOptionNames,
  describe,
  invalidOption,
  longestRetainMs,
} from "../validation.ts";
import type { Seal } from "./seal.ts";
import type { LockStore, SubmissionHashes } from "./store.ts";
import { submitKey, type UserId } from "./submit-key.ts";

/** An operation that a user wants to happen once. Only hashes of its texts leave the process. */
export interface Submission {
  /** Distinguishes the submission from the user's other ones: 1 to 1 024 characters. */
  readonly id: string;
  /**
   * A text that must be equal on a repeat: 1 to 1 024 characters, such as {@link fingerprintOf}
   * makes of the content. It is hashed together with the id. @defaultValue nothing is compared
   */
  readonly fingerprint?: string | undefined;
  /**
   * How long the answer is kept, in milliseconds: 1 000 to 604 800 000 (a week), and at least twice
   * the lock's `acquireTimeoutMs`, so that a late request of an acquire still meets the record.
   * @defaultValue 86 400 000 (a day)
   */
  readonly retainMs?: number | undefined;
}

/** Identifies a submission in a database. For a request, pass its `submission.id` to `identify`. */
export interface SubmissionIdentity {
  /** 22 characters, made of the user and the submission's id. */
  readonly id: string;
  /** 22 characters; `undefined` where nothing is compared. */
  readonly fingerprint: string | undefined;
}

/** Options of `acquire` and `lookUp`. */
export interface AcquireOptions {
  readonly submission: Submission;
}

/** For guards: a submission that has its 22 characters already, and is not hashed again. */
export interface IdentifiedOptions {
  readonly identity: SubmissionIdentity;
  /** How long the answer is kept: see {@link Submission}. */
  readonly retainMs?: number | undefined;
}

export interface ResolvedSubmission {
  readonly identity: SubmissionIdentity;
  /** The store gets these: the hashes of the identity or, under a seal with an id key, their HMACs. */
  readonly hashes: SubmissionHashes;
  readonly retainMs: number;
}

/** Stands for an absent fingerprint, because scripts read a value's parts by their position. */
export const noFingerprint: string = "-".repeat(22);

const maxTextLength = 1_024;

/** `crypto.hash` is twice as fast as `createHash`, but not every runtime has it. */
const sha256: (text: string) => string =
  typeof crypto.hash === "function"
    ? (text) => crypto.hash("sha256", text, "base64url")
    : (text) => crypto.createHash("sha256").update(text).digest("base64url");

/**
 * 132 bits of SHA-256, as 22 characters. Callers refuse or escape lone surrogates: UTF-8 would make
 * all of them equal.
 */
export function hash22(text: string): string {
  return sha256(text).slice(0, 22);
}

/**
 * The fingerprint of a content, for `once` and `acquire`: 22 characters, equal for equal JSON. Above
 * 65 536 characters, the order of an object's members may count. With the `submission.id` of a guarded
 * request, pass its `submission.fingerprint` instead: it covers query and files, too.
 *
 * @example
 * ```ts
 * const submission = { id: `pay:${payment.id}`, fingerprint: fingerprintOf(payment) };
 * await lock.once(user.id, submission, () => pay(payment));
 * ```
 *
 * @param content JSON, a string or bytes.
 * @throws NoFingerprintError for any other content; with status 422, as a client has sent it, for
 * content nested deeper than 64 levels, with a number that is not finite or an invalid date.
 */
export function fingerprintOf(content: unknown): string {
  return hash22(canonicalJson(content));
}

export function resolveIdentity(
  { identity, retainMs }: IdentifiedOptions,
  acquireTimeoutMs: number,
  seal: Seal | undefined,
): ResolvedSubmission {
  const { id, fingerprint = noFingerprint } = Object(identity);
  checkId("identity.id", id);
  checkId("identity.fingerprint", fingerprint);
  return {
    identity,
    hashes: seal?.hashesOf(id, fingerprint) ?? { id, fingerprint },
    retainMs: resolveRetainMs("submission.retainMs", retainMs, acquireTimeoutMs),
  };
}

export function is22(value: unknown): boolean {
  return typeof value === "string" && /^[\w-]{22}$/.test(value);
}

/** @throws InvalidOptionError for a text that is not the 22 characters of a submission. */
export function checkId(name: string, id: unknown): string {
  if (is22(id)) return id as string;
  throw invalidOption(name, "the 22 characters of a submission, as submission.id has them", id);
}

/**
 * The submission of a job, a webhook or `lock.once`, for `SubmissionTable`: equal for the
 * same user and id in every process, and different for any other pair. For `submission.id` of a
 * guarded request of this user, it is the submission of that request.
 *
 * @example
 * ```ts
 * const submission = identify(`payment:${paymentId}`, { id: "finish" });
 * await submissions.once(tx, submission, () => finishOrder(tx, paymentId));
 * ```
 *
 * @throws InvalidUserIdError, InvalidOptionError for an invalid user id, id or fingerprint.
 */
export function identify(
  userId: UserId,
  submission: Pick<Submission, "id" | "fingerprint">,
): SubmissionIdentity {
  checkOptionNames("submission", submission, ["id", "fingerprint", "retainMs"]);
  const { fingerprint } = submission;
  const text = checkText("submission.id", submission.id);
  const user = submitKey("", userId);
  const isGuards = is22(text) && text === guardId(user, text);
  // The encoded user id has no line end, so that no two pairs make one text (rule J7).
  const id = isGuards ? text : hash22(`once\n${user}\n${text}`);
  if (fingerprint === undefined) return { id, fingerprint };
  checkText("submission.fingerprint", fingerprint);
  const isWhole = isGuards && is22(fingerprint);
  return { id, fingerprint: isWhole ? fingerprint : hash22(`${id}:${fingerprint}`) };
}

/**
 * Marks a hash as the id of a guard's submission: its last 4 characters are made of the others and
 * the user. So `lock.once` and `identify` recognise the `submission.id` of this user's request, and
 * find its answer. One in 2^24 of all other texts has the mark.
 */
export function guardId(user: string, hash: string): string {
  const id = hash.slice(0, 18);
  return id + hash22(`guard\n${user}\n${id}`).slice(0, 4);
}

/** Rule 11: a late request of the acquire must still find the record. */
export function resolveRetainMs(name: string, retainMs: unknown, acquireTimeoutMs: number): number {
  const min = Math.max(1_000, 2 * acquireTimeoutMs);
  return checkMs(name, retainMs === undefined ? 86_400_000 : retainMs, min, longestRetainMs);
}

/** Whether a value is a string of 1 to 1 024 characters without a lone surrogate. */
export function isText(value: unknown): value is string {
  if (typeof value !== "string" || value.length < 1 || value.length > maxTextLength) return false;
  return !/\p{Cs}/u.test(value);
}

/** @throws InvalidOptionError if {@link isText} is false; the message does not repeat a string. */
export function checkText(name: string, text: unknown): string {
  if (isText(text)) return text;
  let came = describe(text);
  if (typeof text === "string") {
    const isOfLength = text.length >= 1 && text.length <= maxTextLength;
    came = `a string ${isOfLength ? "with a lone surrogate" : `of ${text.length} characters`}`;
  }
  throw new InvalidOptionError(
    `${name}: expected a string of 1 to ${maxTextLength} characters, got ${came}`,
  );
}

/** @throws InvalidOptionError where the store cannot keep answers, which the feature needs. */
export function checkRecords(store: LockStore, feature: string): void {
  if (store.complete === undefined) {
    throw new InvalidOptionError(
      `${feature}: expected a lock whose store keeps answers (RedisStore, MemoryStore, or a LockStore with complete), got a store without complete`,
    );
  }
  if (store.recordsProblem !== undefined) {
    throw new InvalidOptionError(`${feature}: ${store.recordsProblem}`);
  }
}
