import { InvalidOptionError } from "../errors.ts";
import type { Attempt } from "../lock/attempt.ts";
import type { UserId } from "../lock/submit-key.ts";
import { checkOptionNames, hasMembers, invalidOption } from "../validation.ts";
import type { Anonymous, Contended, Refusal, Unavailable } from "./problem.ts";

/** What a guard needs of a lock: a `SubmitLock`, also of another copy of this package. */
export interface LockLike {
  acquire(userId: UserId): Promise<Attempt>;
  /** Without it, two guards on one request contend with each other. */
  keyFor?(userId: UserId): string;
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
}

/** Answers a refusal. `Args` is what the framework gives to a handler. */
type Answer<Args extends unknown[], Why extends Refusal> = (...args: [...Args, Why]) => unknown;

/** The options as the application gives them to an adapter. */
interface GivenGuardOptions<Source, Args extends unknown[]> extends GuardOptions<Source> {
  readonly onAnonymous?: "reject" | "proceed" | Answer<Args, Anonymous> | undefined;
  readonly onContended?: Answer<Args, Contended> | undefined;
  readonly onUnavailable?: "reject" | "proceed" | Answer<Args, Unavailable> | undefined;
}

/** What becomes of a request that gets no lock: it is answered, or goes on without one. */
export type OnRefusal<Args extends unknown[], Why extends Refusal> = "proceed" | Answer<Args, Why>;

export interface ResolvedGuardOptions<Source, Args extends unknown[]> extends GuardOptions<Source> {
  readonly onAnonymous: OnRefusal<Args, Anonymous>;
  readonly onContended: OnRefusal<Args, Contended>;
  readonly onUnavailable: OnRefusal<Args, Unavailable>;
}

const names = [
  "lock",
  "userId",
  "onAnonymous",
  "onContended",
  "onUnavailable",
  "skip",
] as const satisfies readonly (keyof GivenGuardOptions<never, never>)[];

/**
 * @param reject answers a refusal for which the application has no answer of its own.
 * @throws InvalidOptionError naming the option, what was expected and what came.
 */
export function resolveGuardOptions<Source, Args extends unknown[]>(
  options: GivenGuardOptions<Source, Args>,
  reject: Answer<Args, Refusal>,
): ResolvedGuardOptions<Source, Args> {
  checkOptionNames("submitGuard", options, names);
  const { lock, userId, skip, onAnonymous, onContended, onUnavailable } = options;
  checkLock(lock);
  if (typeof userId !== "function") {
    throw invalidOption("userId", "a function that tells whose request it is", userId);
  }
  checkFunction("skip", skip);
  checkFunction("onContended", onContended);
  checkChoice("onAnonymous", onAnonymous);
  checkChoice("onUnavailable", onUnavailable);
  return {
    lock,
    userId,
    skip,
    onAnonymous: onAnonymous === undefined || onAnonymous === "reject" ? reject : onAnonymous,
    onContended: onContended ?? reject,
    onUnavailable:
      onUnavailable === undefined || onUnavailable === "reject" ? reject : onUnavailable,
  };
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
