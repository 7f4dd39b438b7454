import { InvalidOptionError } from "../errors.ts";
import type { Attempt } from "../lock/attempt.ts";
import type { UserId } from "../lock/submit-key.ts";
import { checkOptionNames, hasMembers, invalidOption } from "../validation.ts";
import type { Refusal } from "./problem.ts";

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

/** How the options come to a guard, whatever its framework. */
export type UncheckedOptions<Source> = GuardOptions<Source> & {
  readonly onAnonymous?: unknown;
  readonly onContended?: unknown;
  readonly onUnavailable?: unknown;
};

const names = ["lock", "userId", "onAnonymous", "onContended", "onUnavailable", "skip"];

/** @throws InvalidOptionError naming the option, what was expected and what came. */
export function checkGuardOptions(options: UncheckedOptions<never>): void {
  checkOptionNames("submitGuard", options, names);
  if (hasMembers(options.lock, ["attach"])) {
    throw new InvalidOptionError(
      "lock: expected a SubmitLock, got a store: write lock: new SubmitLock({ store })",
    );
  }
  if (!hasMembers(options.lock, ["acquire"]) || typeof options.lock.acquire !== "function") {
    throw invalidOption("lock", "a SubmitLock", options.lock);
  }
  if (typeof options.userId !== "function") {
    throw invalidOption("userId", "a function that tells whose request it is", options.userId);
  }
  checkFunction("skip", options.skip);
  checkFunction("onContended", options.onContended);
  checkChoice("onAnonymous", options.onAnonymous);
  checkChoice("onUnavailable", options.onUnavailable);
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

/** What the options say about a refusal: nothing, a word, or a function that answers. */
export function choiceFor(options: UncheckedOptions<never>, refusal: Refusal): unknown {
  switch (refusal.reason) {
    case "anonymous":
      return options.onAnonymous;
    case "contended":
      return options.onContended;
    case "unavailable":
      return options.onUnavailable;
  }
}
