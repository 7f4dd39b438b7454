import { inspect } from "node:util";
import {
  LockClosedError,
  type LockMisconfiguredError,
  type LockUnavailableError,
} from "../errors.ts";
import { checkMs, checkOptionNames } from "../validation.ts";
import { type CompleteOutcome, publish, type ReleaseOutcome, releaseChannel } from "./channels.ts";
import type { HeldLease } from "./held-lease.ts";
import { type AnswerToStore, checkAnswer, type StoredAnswer } from "./record.ts";
import { longestCooldownMs } from "./store.ts";
import { checkRecords } from "./submission.ts";

/** How an attempt to take a user's lock ended. */
export type Attempt =
  | {
      readonly outcome: "acquired";
      readonly lease: Lease;
      /** A reply had been lost or was late, and the lock was confirmed with the same owner id. */
      readonly confirmed: boolean;
    }
  | {
      readonly outcome: "contended";
      /** How long the holder's lease has to live unless it is extended, in milliseconds; `Infinity` for a key that is no lock. */
      readonly expiresInMs: number;
      /** The holder is at work on the very submission that was asked for. */
      readonly sameSubmission?: boolean | undefined;
      /** There is no holder: the cooldown of the user's last submission is not over. */
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
      /** The submission was completed before: nothing was acquired. */
      readonly outcome: "completed";
      readonly answer: StoredAnswer;
      /** How long ago by the store's clock, in milliseconds. */
      readonly ageMs: number;
    }
  | {
      /** The id is that of another submission of the user, with another fingerprint. */
      readonly outcome: "mismatched";
      /** That one is still being processed; otherwise it was completed. */
      readonly inFlight: boolean;
    };

/** How every attempt on a closed lock ends. */
export function closedAttempt(): Extract<Attempt, { outcome: "unavailable" }> {
  return { outcome: "unavailable", cause: new LockClosedError("this lock was closed") };
}

/** A lock that is ours until a time. */
export interface Lease {
  /** The key in the store, such as `lock:submit:42`. */
  readonly key: string;
  /** The random value that identifies this lease, a UUID. Keep it out of logs and answers. */
  readonly ownerId: string;
  /**
   * Aborts, with a `LockLostError` as its reason, when the lease is lost: overtaken, or about to
   * run out because it could not be extended or was held for `maxHoldMs`. It aborts the smaller of
   * 1 s and a tenth of `ttlMs` before the end, and never after a release.
   *
   * A process that is paused beyond the lease hears of it only when it goes on: keep a unique key
   * in the order table as well.
   */
  readonly signal: AbortSignal;
  /**
   * A number that rises from lease to lease of this user: a resource that keeps the highest one it
   * has seen can refuse a holder that was paused beyond its lease. A safe integer; `undefined` where
   * the store has none.
   */
  readonly fencingToken: number | undefined;
  /** How long the lease is certainly valid unless it is extended further, in milliseconds; 0 once it is lost or released. */
  remainingMs(): number;
  /**
   * Gives the lock back. Never rejects and need not be awaited: it settles within about
   * `acquireTimeoutMs`, and goes on in the background if Redis is silent. A second call gives the
   * promise of the first. After `complete`, it waits for that.
   *
   * @throws InvalidOptionError for an invalid `cooldownMs`.
   */
  release(options?: ReleaseOptions): Promise<ReleaseOutcome>;
  /**
   * Keeps the answer of the submission and gives the lock back, in one step: a later acquire of the
   * same submission is `completed` with this answer. The lease need not be valid any more. Never
   * rejects and need not be awaited: it settles within about 2 × `acquireTimeoutMs` + `ttlMs`. A
   * second call gives the promise of the first; after `release` nothing is kept, and it is
   * `unconfirmed`.
   *
   * @throws InvalidOptionError for an invalid answer, or a lease that was acquired without a submission.
   */
  complete(answer: AnswerToStore, options?: ReleaseOptions): Promise<CompleteOutcome>;
}

/** For `release` and `complete`. */
export interface ReleaseOptions {
  /**
   * For how long the user's next acquire is contended, in milliseconds; 0 to 60 000. Only a lease
   * that is still held leaves a cooldown.
   * @defaultValue 0
   */
  readonly cooldownMs?: number | undefined;
}

/** The lease that users get: the public members, without the watchdog behind them. */
export class UserLease implements Lease {
  readonly #held: HeldLease;
  #released: Promise<ReleaseOutcome> | undefined;
  #completed: Promise<CompleteOutcome> | undefined;

  constructor(held: HeldLease) {
    this.#held = held;
  }

  // Getters of the prototype, so that a serialised or logged lease does not show the owner id.
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

  remainingMs(): number {
    return this.#held.remainingMs();
  }

  release(options?: ReleaseOptions): Promise<ReleaseOutcome> {
    const cooldownMs = options === undefined ? 0 : this.#cooldownMs("release", options);
    // Rule 17: the first call of complete or release decides.
    this.#released ??= this.#completed?.then(asReleased);
    if (this.#released !== undefined) return this.#released;
    let settle!: (outcome: ReleaseOutcome) => void;
    // Set before anything else happens: a store may answer at once.
    this.#released = new Promise((resolve) => {
      settle = resolve;
    });
    const releasedAt = performance.now();
    const { command, validity } = this.#held;
    this.#held.release((outcome, cause) => {
      if (releaseChannel.hasSubscribers) {
        const durationMs = performance.now() - releasedAt;
        const heldMs = releasedAt - validity.startedAt;
        publish(releaseChannel, command, { outcome, durationMs, heldMs, cause });
      }
      settle(outcome);
    }, cooldownMs);
    return this.#released;
  }

  complete(answer: AnswerToStore, options?: ReleaseOptions): Promise<CompleteOutcome> {
    const cooldownMs = options === undefined ? 0 : this.#cooldownMs("complete", options);
    checkAnswer(answer);
    this.#completed ??= this.#released?.then(() => "unconfirmed");
    if (this.#completed !== undefined) return this.#completed;
    let settle!: (outcome: CompleteOutcome) => void;
    // Set first, here as well.
    const completed = new Promise<CompleteOutcome>((resolve) => {
      settle = resolve;
    });
    this.#completed = completed;
    try {
      this.#held.complete(answer, cooldownMs, settle);
    } catch (error) {
      // Without a submission nothing was begun.
      this.#completed = undefined;
      throw error;
    }
    return completed;
  }

  #cooldownMs(method: "release" | "complete", options: ReleaseOptions): number {
    checkOptionNames(method, options, ["cooldownMs"]);
    const { cooldownMs = 0 } = options;
    checkMs("cooldownMs", cooldownMs, 0, longestCooldownMs);
    if (cooldownMs > 0) checkRecords(this.#held.runtime.store, "cooldownMs");
    return cooldownMs;
  }

  /** The text that loggers show. */
  toJSON(): { key: string; remainingMs: number } {
    return { key: this.key, remainingMs: Math.floor(this.remainingMs()) };
  }
}

// Not as a member of the class: declarations cannot name its key.
Object.defineProperty(UserLease.prototype, inspect.custom, {
  value(this: UserLease): string {
    return `Lease ${inspect(this.toJSON())}`;
  },
});

/** Maps a complete's outcome to a release outcome. */
function asReleased(outcome: CompleteOutcome): ReleaseOutcome {
  if (outcome === "recorded") return "released";
  return outcome === "unconfirmed" ? "unconfirmed" : "gone";
}
