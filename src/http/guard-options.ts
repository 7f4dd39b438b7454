import { InvalidOptionError } from "../errors.ts";
import type { Attempt, Lease, SubmissionAttempt } from "../lock/lease.ts";
import type { LookUp } from "../lock/look-up.ts";
import type { AcquireOptions } from "../lock/submission.ts";
import type { UserId } from "../lock/submit-key.ts";
import { checkMs, checkOptionNames, hasMembers, invalidOption } from "../validation.ts";
import {
  type IdempotencyOptions,
  type ResolvedIdempotency,
  resolveIdempotencyOptions,
} from "./idempotency-options.ts";
import type { Problem } from "./problem.ts";
import { problemsFor } from "./problems.ts";
import type {
  Anonymous,
  Contended,
  KeyMissing,
  Mismatch,
  Refusal,
  RefusalReason,
  Replay,
  Unavailable,
} from "./refusal.ts";
import type { RequestContent } from "./submission.ts";

/** What a guard needs of a lease. */
export interface LeaseLike
  extends Pick<Lease, "key" | "ownerId" | "signal" | "remainingMs">,
    Partial<Pick<Lease, "complete" | "fencingToken">> {
  release(options?: { readonly cooldownMs?: number }): Promise<unknown>;
}

/** How an attempt on a `LockLike` ended. */
export type AttemptLike =
  | Exclude<SubmissionAttempt, { outcome: "acquired" }>
  | (Omit<Extract<Attempt, { outcome: "acquired" }>, "lease"> & { readonly lease: LeaseLike });

/** How one without a submission ended. */
type PlainAttemptLike = Exclude<AttemptLike, { outcome: "completed" | "mismatched" }>;

/** What a guard needs of a lock: a `SubmitLock`, also of another copy of this package. */
export interface LockLike {
  acquire(userId: UserId): Promise<PlainAttemptLike>;
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

/** The options that every adapter has; `Source` is what its callbacks are given, such as a request. */
export interface GuardOptions<Source> {
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
   * Recognises a submission that comes again, and repeats its answer instead of running it again.
   * `{}`: by the `Idempotency-Key` header. Its body parser stands before the guard.
   * @defaultValue none: a submission that comes when the first is over is a new one
   */
  readonly idempotency?: IdempotencyOptions<Source> | undefined;
  /**
   * For how long the user's next submission is contended after one that succeeded (2xx, 3xx), in
   * milliseconds; 0 to 60 000. For clients without any id.
   * @defaultValue 0
   */
  readonly cooldownMs?: number | undefined;
}

/** Answers a request that does not run. `Args` is what the framework gives to a handler. */
type Answer<Args extends unknown[], Why> = (...args: [...Args, Why]) => unknown;

/** The options as the application gives them to an adapter. */
interface GivenGuardOptions<Source, Args extends unknown[]> extends GuardOptions<Source> {
  readonly onAnonymous?: "reject" | "proceed" | Answer<Args, Anonymous> | undefined;
  readonly onContended?: Answer<Args, Contended> | undefined;
  readonly onUnavailable?: "reject" | "proceed" | Answer<Args, Unavailable> | undefined;
  readonly onKeyMissing?: Answer<Args, KeyMissing> | undefined;
  readonly onMismatch?: Answer<Args, Mismatch> | undefined;
  readonly onReplay?: Answer<Args, Replay> | undefined;
}

/** What becomes of a request that gets no lock: it is answered, or goes on without one. */
export type OnRefusal<Args extends unknown[], Why> = "proceed" | Answer<Args, Why>;

/** What an adapter does by itself. */
export interface Defaults<Source, Args extends unknown[]> {
  /** Sends the problem of a refusal for which the application has no answer of its own. */
  readonly reject: Answer<Args, Refusal>;
  /** Whether the client would rather be answered with a page. */
  prefersPage(source: Source): boolean;
  /** Repeats an answer. */
  readonly replay: Answer<Args, Replay>;
  readonly content: (source: Source) => RequestContent;
}

export interface ResolvedGuardOptions<Source, Args extends unknown[]>
  extends Pick<GuardOptions<Source>, "lock" | "userId" | "skip"> {
  readonly idempotency: ResolvedIdempotency<Source> | undefined;
  readonly cooldownMs: number;
  readonly content: (source: Source) => RequestContent;
  /** The default answer to a refusal. */
  problem(refusal: RefusalReason, source: Source, isDerived: boolean): Problem;
  readonly onAnonymous: OnRefusal<Args, Anonymous>;
  readonly onContended: OnRefusal<Args, Contended>;
  readonly onUnavailable: OnRefusal<Args, Unavailable>;
  readonly onKeyMissing: OnRefusal<Args, KeyMissing>;
  readonly onMismatch: OnRefusal<Args, Mismatch>;
  readonly onReplay: Answer<Args, Replay>;
  /** The application answers replays itself, also those of answers that were not kept whole. */
  readonly hasOnReplay: boolean;
}

const names = [
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
] as const satisfies readonly (keyof GivenGuardOptions<never, never>)[];

/** @throws InvalidOptionError naming the option, what was expected and what came. */
export function resolveGuardOptions<Source, Args extends unknown[]>(
  options: GivenGuardOptions<Source, Args>,
  defaults: Defaults<Source, Args>,
): ResolvedGuardOptions<Source, Args> {
  checkOptionNames("submitGuard", options, names);
  const { lock, userId, skip, cooldownMs = 0, onAnonymous, onContended, onUnavailable } = options;
  const { onKeyMissing, onMismatch, onReplay } = options;
  checkLock(lock);
  if (typeof userId !== "function") {
    throw invalidOption("userId", "a function that tells whose request it is", userId);
  }
  const functions = { skip, onContended, onKeyMissing, onMismatch, onReplay };
  for (const [name, value] of Object.entries(functions)) checkFunction(name, value);
  checkChoice("onAnonymous", onAnonymous);
  checkChoice("onUnavailable", onUnavailable);
  checkMs("cooldownMs", cooldownMs, 0, 60_000);
  if (cooldownMs > 0) requireRecords(lock, "cooldownMs");
  const idempotency = resolveIdempotency(options);
  const { content, prefersPage, reject } = defaults;
  const problemOf = problemsFor(idempotency?.docs);
  const rejects = (choice: unknown): choice is "reject" | undefined =>
    choice === undefined || choice === "reject";
  return {
    lock,
    userId,
    skip,
    idempotency,
    cooldownMs,
    content,
    problem: (refusal, source, isDerived) =>
      problemOf(refusal, { isDerived, prefersPage: prefersPage(source) }),
    onAnonymous: rejects(onAnonymous) ? reject : onAnonymous,
    onContended: onContended ?? reject,
    onUnavailable: rejects(onUnavailable) ? reject : onUnavailable,
    onKeyMissing: onKeyMissing ?? reject,
    onMismatch: onMismatch ?? reject,
    onReplay: onReplay ?? defaults.replay,
    hasOnReplay: onReplay !== undefined,
  };
}

function resolveIdempotency<Source>({
  idempotency,
  lock,
}: GuardOptions<Source>): ResolvedIdempotency<Source> | undefined {
  if (idempotency === undefined) return undefined;
  const { acquireTimeoutMs } = requireRecords(lock, "idempotency");
  const resolved = resolveIdempotencyOptions(idempotency, acquireTimeoutMs);
  if (lock.keyFor === undefined) throw notEnough("idempotency", "keyFor");
  if (resolved.waitMs > 0 && lock.lookUp === undefined) throw notEnough("waitMs", "lookUp");
  return resolved;
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

function checkFunction(name: string, value: unknown): void {
  if (value !== undefined && typeof value !== "function") {
    throw invalidOption(name, "a function", value);
  }
}

function checkChoice(name: string, value: unknown): void {
  if (value === undefined || value === "reject" || value === "proceed") return;
  if (typeof value !== "function") {
    throw invalidOption(name, '"reject", "proceed" or a function', value);
  }
}
