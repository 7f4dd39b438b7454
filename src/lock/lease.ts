import { inspect } from "node:util";
import {
  LockClosedError,
  type LockMisconfiguredError,
  type LockUnavailableError,
} from "../errors.ts";
import { performance } from "../time.ts";
import { checkMs, checkOptionNames, longestCooldownMs } from "../validation.ts";
import { type CompleteOutcome, type ReleaseOutcome, releaseChannel } from "./channels.ts";
import type { HeldLease } from "./held-lease.ts";
import {
  type AnswerToStore,
  checkAnswer,
  type RecordContent,
  type StoredAnswer,
} from "./record.ts";
import { publish } from "./runtime.ts";
import { checkRecords, type SubmissionIdentity } from "./submission.ts";

/** How an attempt to take a user's lock ended. */
export type Attempt =
  | {
      readonly outcome: "acquired";
      readonly lease: Lease;
      /** A reply was lost or late, so the acquire was sent again with the same owner id. */
      readonly confirmed: boolean;
    }
  | {
      readonly outcome: "contended";
      /** How long the key lives unless extended, in ms; `Infinity` if the key is not a string. */
      readonly expiresInMs: number;
      /** The holder has the lock for the same submission. */
      readonly sameSubmission?: boolean | undefined;
      /** There is no holder: the cooldown that the user's last lease left is not over. */
      readonly isCooldown?: boolean | undefined;
    }
  | {
      readonly outcome: "unavailable";
      readonly cause: LockUnavailableError | LockMisconfiguredError | LockClosedError;
    };

/** How an attempt to take a user's lock for a submission ended. */
export type SubmissionAttempt =
  | Attempt
  | {
      /** The submission was completed before, perhaps by `once`. Nothing was acquired. */
      readonly outcome: "completed";
      readonly answer: StoredAnswer;
      /** Time since the complete, by the store's clock, in ms; 0 if the answer is `unreadable`. */
      readonly ageMs: number;
    }
  | {
      /** The user has a submission with this id and another fingerprint. */
      readonly outcome: "mismatched";
      /** `true` if the user's submission is still being processed, `false` if it was completed. */
      readonly inFlight: boolean;
    };

export function closedAttempt(): Extract<Attempt, { outcome: "unavailable" }> {
  return {
    outcome: "unavailable",
    cause: new LockClosedError(
      "cannot use this lock: close() was called. Close it after the last request",
    ),
  };
}

/** A user's lock, held until `release` or `complete` is called or the lease is lost. */
export interface Lease {
  /** The key in the store, such as `lock:submit:42`. */
  readonly key: string;
  /** The random value that identifies this lease, a UUID. Keep it out of logs and answers. */
  readonly ownerId: string;
  /**
   * Aborts when the lease is lost; its reason is a `LockLostError`. A lease that runs out
   * (`expired`, `max-hold`) is lost 1 s before its end, or `ttlMs` / 10 before it if that is less.
   * Never aborts once `release` or `complete` was called.
   *
   * Reading `aborted` or `reason`, or calling `throwIfAborted`, checks the clock, also in a process
   * that was stopped or on a machine that slept; listeners, and signals of `AbortSignal.any`, hear
   * of it by a timer. Between the check and the database a process can still stop: keep a unique
   * key in the order table, too.
   */
  readonly signal: AbortSignal;
  /**
   * A safe integer that rises from lease to lease of this user, unless Redis' clock is set back: a
   * resource that keeps the highest one can refuse a holder that was paused beyond its lease.
   * `undefined` where the store has none.
   */
  readonly fencingToken: number | undefined;
  /**
   * The submission as `identify` returns it, or as a guarded request has it in `submission`: for
   * `SubmissionTable` of `submit-lock/sql`. `undefined` for a lease without a submission.
   */
  readonly submission: SubmissionIdentity | undefined;
  /** How long the lease is valid unless extended, in ms; 0 once lost, released or completed. */
  remainingMs(): number;
  /**
   * Releases the lock. Never rejects and need not be awaited: it settles within about
   * `acquireTimeoutMs`, and goes on in the background if Redis is silent. A second call returns the
   * promise of the first. After `complete`, it settles when the complete does.
   * @throws InvalidOptionError for an invalid option.
   */
  release(options?: ReleaseOptions & ToldOptions): Promise<ReleaseOutcome>;
  /**
   * Keeps the answer of the submission and releases the lock, in one step: a later acquire of the
   * same submission is `completed` with this answer. A lost lease can be completed, too. Never
   * rejects and need not be awaited: it settles within about 2 × `acquireTimeoutMs` + `ttlMs`. A
   * second call returns the promise of the first; after `release` it is `unconfirmed`.
   * @throws InvalidOptionError for an invalid argument, or a lease acquired without a submission.
   */
  complete(answer: AnswerToStore, options?: ReleaseOptions): Promise<CompleteOutcome>;
  /** For `await using`: releases the lock at the end of the block, unless it was completed. */
  [Symbol.asyncDispose](): Promise<void>;
}

/** A function that `withLock` or `once` runs while its lease holds the lock. */
export type LockedWork<Result> = (lease: Lease) => Result | PromiseLike<Result>;

/** Options of `release` and `complete`. */
export interface ReleaseOptions {
  /**
   * For how long after the end of this lease no acquire gets the user's lock, in ms; 0 to
   * 60 000. Only a lease that is still held leaves a cooldown. @defaultValue 0
   */
  readonly cooldownMs?: number | undefined;
}

/** An option of `release` alone. */
export interface ToldOptions {
  /**
   * The answer of this run, for callers of `acquireOrWait` that wait for its end. It is not kept: a
   * later repeat runs. Ignored without a submission, and once the lease is lost. For a guard, a
   * status of 101 says that nothing has run, so that a waiting repeat runs.
   */
  readonly told?: AnswerToStore | undefined;
}

export class UserLease implements Lease {
  readonly #held: HeldLease;
  #released: Promise<ReleaseOutcome> | undefined;
  #completed: Promise<CompleteOutcome> | undefined;
  #isPlaced = false;

  constructor(held: HeldLease) {
    this.#held = held;
  }

  // These getters are on the prototype, so that a serialised or logged lease hides the owner id.
  get key(): string {
    return this.#held.command.key;
  }
  get ownerId(): string {
    return this.#held.command.ownerId;
  }
  get signal(): AbortSignal {
    return this.#held.signal;
  }
  get fencingToken(): number | undefined {
    return this.#held.fencingToken;
  }
  get submission(): SubmissionIdentity | undefined {
    return this.#held.command.identity;
  }

  remainingMs(): number {
    this.#held.look();
    return this.#held.remainingMs();
  }

  release(options?: ReleaseOptions & ToldOptions): Promise<ReleaseOutcome> {
    const cooldownMs = options === undefined ? 0 : this.#cooldownMs("release", options);
    const { told } = options ?? {};
    if (told !== undefined) checkAnswer(told);
    this.#held.orderEnds?.();
    // The order is placed, so keep a record without an answer: after a mere release a repeat runs.
    if (this.#isPlaced) void this.#complete({ status: 100 }, cooldownMs);
    // Rule 17: the first call of complete or release decides.
    this.#released ??= this.#completed?.then(asReleased);
    if (this.#released !== undefined) return this.#released;
    let settle!: (outcome: ReleaseOutcome) => void;
    // The promise is set before the release begins, because a store may answer at once.
    this.#released = new Promise((resolve) => {
      settle = resolve;
    });
    const releasedAt = performance.now();
    const { clock, command } = this.#held;
    this.#held.release(
      (outcome, cause) => {
        if (releaseChannel.hasSubscribers) {
          const durationMs = performance.now() - releasedAt;
          const heldMs = releasedAt - clock.startedAt;
          publish(releaseChannel, command, { outcome, durationMs, heldMs, cause });
        }
        settle(outcome);
      },
      cooldownMs,
      told,
    );
    return this.#released;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release();
  }

  complete(answer: AnswerToStore, options?: ReleaseOptions): Promise<CompleteOutcome> {
    const cooldownMs = options === undefined ? 0 : this.#cooldownMs("complete", options);
    checkAnswer(answer);
    this.#held.orderEnds?.();
    return this.#complete(answer, cooldownMs);
  }

  /** For `check` and a closed lock. Static, like the next four, so that handlers do not see it. */
  static heldOf(lease: Lease): HeldLease {
    return (lease as UserLease).#held;
  }

  /** Used by `placed()` of a guard: from now on a release is a complete, without an answer. */
  static placed(lease: Lease): void {
    if (#isPlaced in lease) lease.#isPlaced = true;
  }

  /** Used by a guard, for which a signal would cost too much. @param listener called at the loss. */
  static onLost(lease: Lease, listener: () => void): void {
    if (#held in lease) lease.#held.onLost = listener;
    // A lease of another copy of the package.
    else lease.signal.addEventListener("abort", listener);
  }

  /** Used by a guard after a loss: as `complete`, but the order and its trace go on. */
  static record(lease: Lease, answer: AnswerToStore): void {
    void (#held in lease ? lease.#complete(answer, 0) : lease.complete(answer));
  }

  /** Used by `once`. @param json the value, if it is kept. */
  static completeWithValue(lease: UserLease, json: string | undefined): Promise<CompleteOutcome> {
    lease.#held.orderEnds?.();
    // No guard replays a status of 100: a guard that finds this record refuses its request.
    return lease.#complete({ status: 100, json }, 0);
  }

  #complete(content: RecordContent, cooldownMs: number): Promise<CompleteOutcome> {
    this.#completed ??= this.#released?.then(() => "unconfirmed");
    if (this.#completed !== undefined) return this.#completed;
    let settle!: (outcome: CompleteOutcome) => void;
    const completed = new Promise<CompleteOutcome>((resolve) => {
      settle = resolve;
    });
    this.#completed = completed;
    try {
      this.#held.complete(content, cooldownMs, settle);
    } catch (error) {
      // The lease has no submission: `release` must still work.
      this.#completed = undefined;
      throw error;
    }
    return completed;
  }

  #cooldownMs(method: "release" | "complete", options: ReleaseOptions): number {
    checkOptionNames(method, options, ["cooldownMs", ...(method === "release" ? ["told"] : [])]);
    const { cooldownMs = 0 } = options;
    checkMs("cooldownMs", cooldownMs, 0, longestCooldownMs);
    if (cooldownMs > 0) checkRecords(this.#held.runtime.store, "cooldownMs");
    return cooldownMs;
  }

  /** Used by JSON and loggers, which must not show the owner id. */
  toJSON(): { key: string; remainingMs: number } {
    return { key: this.key, remainingMs: Math.floor(this.#held.remainingMs()) };
  }
}

// Defined here, because declaration files cannot name the key `inspect.custom`.
Object.defineProperty(UserLease.prototype, inspect.custom, {
  value(this: UserLease): string {
    return `Lease ${inspect(this.toJSON())}`;
  },
});

function asReleased(outcome: CompleteOutcome): ReleaseOutcome {
  if (outcome === "recorded") return "released";
  return outcome === "unconfirmed" ? "unconfirmed" : "gone";
}
