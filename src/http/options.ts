import { InvalidOptionError } from "../errors.ts";
import type { Attempt, Lease, SubmissionAttempt } from "../lock/lease.ts";
import type { LookUp } from "../lock/on-call.ts";
import { type AcquireOptions, resolveRetainMs } from "../lock/submission.ts";
import type { UserId } from "../lock/submit-key.ts";
import { checkMs, checkOptionNames, hasMembers, invalidOption } from "../validation.ts";
import type { RequestContent } from "./fingerprint.ts";
import {
  type Anonymous,
  type Contended,
  type KeyMissing,
  type Mismatch,
  type Problem,
  problemOf,
  type Refusal,
  type RefusalReason,
  type Replay,
  type Unavailable,
} from "./refusals.ts";
import { resolveStoredHeaders, type StorePolicy } from "./stored-answer.ts";

/** The members of a lease that a guard needs. */
export interface LeaseLike
  extends Pick<Lease, "key" | "ownerId" | "signal" | "remainingMs">,
    Partial<Pick<Lease, "complete" | "fencingToken">> {
  release(options?: { readonly cooldownMs?: number }): Promise<unknown>;
}

/** How an attempt on a `LockLike` ended. */
export type AttemptLike =
  | Exclude<SubmissionAttempt, { outcome: "acquired" }>
  | (Omit<Extract<Attempt, { outcome: "acquired" }>, "lease"> & { readonly lease: LeaseLike });

/** The members of a lock that a guard needs: a `SubmitLock`, also of another copy of this package. */
export interface LockLike {
  acquire(userId: UserId): Promise<Exclude<AttemptLike, { outcome: "completed" | "mismatched" }>>;
  acquire(userId: UserId, options: AcquireOptions): Promise<AttemptLike>;
  /** Without it, two guards on one request contend with each other. */
  keyFor?(userId: UserId): string;
  /** Needed for `idempotency` and `cooldownMs`. */
  requireRecords?(feature: string): { readonly acquireTimeoutMs: number };
  /** Needed for `idempotency.waitMs`. */
  lookUp?(userId: UserId, options: AcquireOptions): Promise<LookUp>;
}

/** No user: the submission is anonymous. */
export type NoUser = undefined | null | "";

/** No id that distinguishes this submission from others. */
export type NoId = undefined | null | "";

/** Answers a request that does not run. `Args` are the arguments of the framework's handlers. */
type AnswerFunction<Args extends unknown[], Info> = (
  ...args: [...args: Args, info: Info]
) => unknown;

/**
 * The options of a guard. `Source` is the argument of its callbacks, such as a request; `Args` are
 * the arguments of its functions that answer, followed by the reason.
 */
export interface GuardOptions<Source, Args extends unknown[]> {
  /** A `SubmitLock`. */
  readonly lock: LockLike;
  /**
   * Whose submission this is: a string of 1 to 200 characters, a safe integer or a bigint. Take it
   * from the session or token that was verified, never from the body. `undefined`, `null` and `""`
   * are anonymous.
   */
  readonly userId: (source: Source) => UserId | NoUser | Promise<UserId | NoUser>;
  /** Requests that are let through without a lock. @defaultValue none, apart from `OPTIONS` */
  readonly skip?: ((source: Source) => boolean | Promise<boolean>) | undefined;
  /**
   * Recognises a submission that is sent again, and repeats its answer instead of running it again.
   * `{}`: by the `Idempotency-Key` header. Mount its body parser before the guard.
   * @defaultValue none: a submission that is sent when the first is over is a new one
   */
  readonly idempotency?: IdempotencyOptions<Source> | undefined;
  /**
   * For how long the user's next submission is contended after one that succeeded (2xx, 3xx), in
   * milliseconds; 0 to 60 000. For clients without any id.
   * @defaultValue 0
   */
  readonly cooldownMs?: number | undefined;
  /** A request without a user: 401, go on without a lock, or answer. @defaultValue "reject" */
  readonly onAnonymous?: "reject" | "proceed" | AnswerFunction<Args, Anonymous> | undefined;
  /** Another submission of the user is being processed, or any other reason for a 409. @defaultValue 409 */
  readonly onContended?: AnswerFunction<Args, Contended> | undefined;
  /** Redis does not answer: 503, go on without a lock, or answer. @defaultValue "reject" */
  readonly onUnavailable?: "reject" | "proceed" | AnswerFunction<Args, Unavailable> | undefined;
  /**
   * The `Idempotency-Key` is missing although it is required, or cannot be read, or `submissionId`
   * returned an unfit id. @defaultValue 400
   */
  readonly onKeyMissing?: AnswerFunction<Args, KeyMissing> | undefined;
  /** The id of the submission is that of another one, with other content. @defaultValue 422 */
  readonly onMismatch?: AnswerFunction<Args, Mismatch> | undefined;
  /** The submission was completed before. @defaultValue its answer, with `Idempotent-Replayed: true` */
  readonly onReplay?: AnswerFunction<Args, Replay> | undefined;
}

/** How a guard recognises a submission that is sent again; `Source` is the argument of its callbacks. */
export interface IdempotencyOptions<Source> {
  /** The `Idempotency-Key` header. `"required"`: 400 without it. @defaultValue "optional" */
  readonly key?: "optional" | "required" | "ignored" | undefined;
  /**
   * Identifies one submission, independently of the client: cart id and version, or a token rendered
   * into the form; 1 to 1 024 characters. Where it gives an id, the header does not count. Do not
   * hash the body: an order that is placed twice on purpose would be lost. A number, a boolean and
   * unfit text are a 400; an object goes to the error handler. @defaultValue none
   */
  readonly submissionId?: ((source: Source) => string | NoId | Promise<string | NoId>) | undefined;
  /**
   * The content that has to be equal on a retry: JSON, a string, bytes, or a promise of them; anything
   * else goes to the error handler. @defaultValue query, parsed body and files for ids of the header, none for `submissionId`
   */
  readonly fingerprint?: ((source: Source) => unknown) | undefined;
  /**
   * How long an answer is kept, in milliseconds: 1 000 to 604 800 000, and at least twice the
   * lock's `acquireTimeoutMs`. @defaultValue 86 400 000
   */
  readonly retainMs?: number | undefined;
  /** Which answers are kept. @defaultValue "success" */
  readonly store?: StorePolicy | undefined;
  /** Headers that are stored and replayed beside the package's own list. @defaultValue none */
  readonly replayHeaders?: readonly string[] | undefined;
  /**
   * The longest body that is kept, in bytes: 0 to 1 048 576. Of a longer one only the fact is kept
   * that there was an answer, and the submission is not run again. @defaultValue 65 536
   */
  readonly maxBodyBytes?: number | undefined;
  /**
   * How long to wait for the answer of the same submission, still in flight, in milliseconds:
   * 0 to 30 000. @defaultValue 0
   */
  readonly waitMs?: number | undefined;
  /** An absolute http(s) URL of your documentation: problem `type`, and `Link`. @defaultValue none */
  readonly docs?: string | undefined;
}

/** The adapter's part of a guard. */
interface Adapter<Source, Args extends unknown[]> {
  /** Sends the problem of a refusal for which the application has no answer of its own. */
  readonly reject: AnswerFunction<Args, Refusal>;
  /** Whether the client would rather be answered with a page. */
  prefersPage(source: Source): boolean;
  /** Repeats an answer. */
  readonly replay: AnswerFunction<Args, Replay>;
  readonly content: (source: Source) => RequestContent;
}

export interface ResolvedGuardOptions<Source, Args extends unknown[]>
  extends Pick<GuardOptions<Source, Args>, "lock" | "userId" | "skip">,
    Pick<Adapter<Source, Args>, "content"> {
  readonly idempotency: ResolvedIdempotency<Source> | undefined;
  readonly cooldownMs: number;
  /** The default answer to a refusal. */
  problem(refusal: RefusalReason, source: Source, isDerived: boolean): Problem;
  /** What follows a refusal: an answer, or to go on without a lock. */
  readonly onRefusal: Readonly<
    Record<Refusal["reason"], "proceed" | AnswerFunction<Args, Refusal>>
  >;
  readonly onReplay: AnswerFunction<Args, Replay>;
  /** The application answers replays itself, also those of answers that were not kept whole. */
  readonly hasOnReplay: boolean;
}

/** Given, or by default. */
type Present<Options> = { readonly [Name in keyof Options]-?: Exclude<Options[Name], undefined> };

type OptionsWithDefault = "key" | "retainMs" | "store" | "maxBodyBytes" | "waitMs";

/** Its `docs` are safe within a header. */
export interface ResolvedIdempotency<Source>
  extends Present<Pick<IdempotencyOptions<Source>, OptionsWithDefault>>,
    Pick<IdempotencyOptions<Source>, "submissionId" | "fingerprint" | "docs"> {
  /** In lower case. */
  readonly storedHeaders: ReadonlySet<string>;
}

const guardNames = [
  "lock",
  "userId",
  "onAnonymous",
  "onContended",
  "onUnavailable",
  "skip",
  "idempotency",
  "cooldownMs",
  "onKeyMissing",
  "onMismatch",
  "onReplay",
] as const satisfies readonly (keyof GuardOptions<never, never>)[];

const idempotencyNames = [
  "key",
  "submissionId",
  "fingerprint",
  "retainMs",
  "store",
  "replayHeaders",
  "maxBodyBytes",
  "waitMs",
  "docs",
] as const satisfies readonly (keyof IdempotencyOptions<never>)[];

/** @throws InvalidOptionError naming the option, what was expected and what came. */
export function resolveGuardOptions<Source, Args extends unknown[]>(
  options: GuardOptions<Source, Args>,
  { content, prefersPage, reject, replay }: Adapter<Source, Args>,
): ResolvedGuardOptions<Source, Args> {
  checkOptionNames("submitGuard", options, guardNames);
  const { lock, userId, skip, cooldownMs = 0, onAnonymous, onContended, onUnavailable } = options;
  const { onKeyMissing, onMismatch, onReplay } = options;
  checkLock(lock);
  if (typeof userId !== "function") {
    throw invalidOption("userId", "a function that tells whose request it is", userId);
  }
  const functions = { skip, onContended, onKeyMissing, onMismatch, onReplay };
  for (const [name, value] of Object.entries(functions)) checkFunction(name, value);
  checkFunction("onAnonymous", onAnonymous, "reject", "proceed");
  checkFunction("onUnavailable", onUnavailable, "reject", "proceed");
  checkMs("cooldownMs", cooldownMs, 0, 60_000);
  if (cooldownMs > 0) requireRecords(lock, "cooldownMs");
  const idempotency =
    options.idempotency === undefined
      ? undefined
      : resolveIdempotencyOptions(
          options.idempotency,
          requireRecords(lock, "idempotency").acquireTimeoutMs,
        );
  if (idempotency !== undefined && lock.keyFor === undefined) {
    throw notEnough("idempotency", "keyFor");
  }
  const { docs, waitMs = 0 } = idempotency ?? {};
  if (waitMs > 0 && lock.lookUp === undefined) throw notEnough("waitMs", "lookUp");
  const chosen = (choice: "reject" | "proceed" | AnswerFunction<Args, never> | undefined) =>
    choice === undefined || choice === "reject"
      ? reject
      : (choice as "proceed" | AnswerFunction<Args, Refusal>);
  return {
    lock,
    userId,
    skip,
    idempotency,
    cooldownMs,
    content,
    problem: (refusal, source, isDerived) =>
      problemOf(refusal, { docs, isDerived, prefersPage: prefersPage(source) }),
    onRefusal: {
      anonymous: chosen(onAnonymous),
      contended: chosen(onContended),
      unavailable: chosen(onUnavailable),
      "key-missing": chosen(onKeyMissing),
      "key-invalid": chosen(onKeyMissing),
      "id-invalid": chosen(onKeyMissing),
      mismatch: chosen(onMismatch),
    },
    onReplay: onReplay ?? replay,
    hasOnReplay: onReplay !== undefined,
  };
}

/**
 * @param acquireTimeoutMs of the guard's lock; 0 where it is not known, and then the lock refuses a
 * `retainMs` that is too short for it.
 * @throws InvalidOptionError naming the option, what was expected and what came.
 */
export function resolveIdempotencyOptions<Source>(
  options: IdempotencyOptions<Source>,
  acquireTimeoutMs: number,
): ResolvedIdempotency<Source> {
  checkOptionNames("idempotency", options, idempotencyNames);
  const { key = "optional", store = "success", maxBodyBytes = 65_536, waitMs = 0 } = options;
  if (key !== "optional" && key !== "required" && key !== "ignored") {
    throw invalidOption("idempotency.key", '"optional", "required" or "ignored"', key);
  }
  checkFunction("idempotency.submissionId", options.submissionId);
  checkFunction("idempotency.fingerprint", options.fingerprint);
  if (key === "ignored" && options.submissionId === undefined) {
    throw new InvalidOptionError(
      'idempotency: expected submissionId beside key: "ignored", got none, so nothing would identify a submission',
    );
  }
  checkFunction("idempotency.store", store, "success", "final");
  if (!Number.isInteger(maxBodyBytes) || maxBodyBytes < 0 || maxBodyBytes > 1_048_576) {
    const expected = "a whole number of bytes from 0 to 1048576";
    throw invalidOption("idempotency.maxBodyBytes", expected, maxBodyBytes);
  }
  return {
    key,
    submissionId: options.submissionId,
    fingerprint: options.fingerprint,
    retainMs: resolveRetainMs("idempotency.retainMs", options.retainMs, acquireTimeoutMs),
    store,
    storedHeaders: resolveStoredHeaders(options.replayHeaders),
    maxBodyBytes,
    waitMs: checkMs("idempotency.waitMs", waitMs, 0, 30_000),
    docs: resolveDocs(options.docs),
  };
}

/** Uses the form of `URL.href`, which has no character that could end a `Link` or a header line. */
function resolveDocs(docs: unknown): string | undefined {
  if (docs === undefined) return undefined;
  const url = typeof docs === "string" && URL.canParse(docs) ? new URL(docs) : undefined;
  if (url?.protocol === "https:" || url?.protocol === "http:") return url.href;
  throw invalidOption("idempotency.docs", "an absolute http or https URL", docs);
}

function requireRecords(lock: LockLike, feature: string): { readonly acquireTimeoutMs: number } {
  if (lock.requireRecords === undefined) throw notEnough(feature, "requireRecords");
  return lock.requireRecords(feature);
}

function notEnough(feature: string, member: string): InvalidOptionError {
  return new InvalidOptionError(
    `${feature}: expected lock to be a SubmitLock, got an object without ${member}`,
  );
}

function checkLock(lock: LockLike): void {
  if (hasMembers(lock, ["attach"])) {
    throw new InvalidOptionError(
      "lock: expected a SubmitLock, got a store: write lock: new SubmitLock({ store })",
    );
  }
  if (!hasMembers(lock, ["acquire"]) || typeof lock.acquire !== "function") {
    throw invalidOption("lock", "a SubmitLock", lock);
  }
}

/** @param words what the option may be beside a function. */
function checkFunction(name: string, value: unknown, ...words: readonly unknown[]): void {
  if (value === undefined || typeof value === "function" || words.includes(value)) return;
  const expected = words.map((word) => `"${word}"`).join(", ");
  throw invalidOption(name, words.length > 0 ? `${expected} or a function` : "a function", value);
}
