import { v4 as uuid } from "uuid";
import { checkMs, checkOptionNames, invalidOption } from "../validation.ts";
import { Acquiring, type Settled } from "./acquire.ts";
import { captureContext } from "./channels.ts";
import {
  type Attempt,
  closedAttempt,
  type Lease,
  type SubmissionAttempt,
  UserLease,
} from "./lease.ts";
import {
  type CheckOptions,
  check,
  type FreeOptions,
  type FreeResult,
  free,
  type Inspection,
  inspect,
  type LockStats,
  type LookUp,
  lookUp,
  statsOf,
} from "./on-call.ts";
import { resolveLockOptions, type SubmitLockOptions } from "./options.ts";
import { type CallerCommand, type CloseOptions, drain, LockRuntime } from "./runtime.ts";
import {
  type AcquireOptions,
  checkRecords,
  type ResolvedSubmission,
  resolveSubmission,
} from "./submission.ts";
import { submitKey, type UserId } from "./submit-key.ts";
import { type WithLockOptions, waitForLease } from "./with-lock.ts";

/** The work under the lock. */
export type LockedWork<Result> = (lease: Lease) => Result | PromiseLike<Result>;

/** One lock a user: its holder may submit, every other attempt is refused at once. */
export class SubmitLock {
  /** The beginning of every key, before the user id. */
  readonly keyPrefix: string;
  readonly #holder: string;
  readonly #runtime: LockRuntime;
  readonly #detach: () => Promise<void>;
  /** Something has asked this lock to keep answers. */
  #keepsRecords = false;
  #closed: Promise<void> | undefined;

  /** @throws InvalidOptionError naming the option, what was expected and what came. */
  constructor(options: SubmitLockOptions) {
    const { store, keyPrefix, times, holder } = resolveLockOptions(options);
    this.keyPrefix = keyPrefix;
    this.#holder = holder;
    this.#runtime = new LockRuntime(store, times);
    this.#detach = store.attach(() => {
      for (const lease of this.#runtime.watchdogs.armed()) lease.extendNow();
    });
  }

  /**
   * The key that locks this user, such as `lock:submit:42`.
   *
   * @throws InvalidUserIdError when the user id is no usable id.
   */
  keyFor(userId: UserId): string {
    return submitKey(this.keyPrefix, userId);
  }

  /**
   * One attempt to take the user's lock. Settles within `acquireTimeoutMs`, and never rejects for
   * what Redis or a rival did.
   *
   * @throws InvalidUserIdError (as a rejection) when the user id is no usable id.
   */
  acquire(userId: UserId): Promise<Attempt>;
  /**
   * Acquires for a submission. Returns `completed` if it already ran, and `mismatched` if its id was
   * used with a different fingerprint. End its lease with `complete`.
   *
   * @throws InvalidOptionError (as a rejection) for an invalid submission, or a store that keeps no answers.
   */
  acquire(userId: UserId, options: AcquireOptions): Promise<SubmissionAttempt>;
  acquire(userId: UserId, options?: AcquireOptions): Promise<SubmissionAttempt> {
    // An error that is thrown in here rejects.
    return new Promise((resolve) => {
      const submission = options === undefined ? undefined : this.#submission(options);
      const key = submitKey(this.keyPrefix, userId);
      const ended = (settled: Settled): void => {
        if (settled.outcome === "acquired") {
          const { confirmed, held } = settled;
          resolve({ outcome: "acquired", lease: new UserLease(held), confirmed });
        } else resolve(settled);
      };
      if (this.#closed !== undefined) resolve(closedAttempt());
      else new Acquiring(this.#runtime, this.#command(key, submission), true, ended).begin();
    });
  }

  /**
   * Looks up the state of a submission, without taking the lock. For callers that wait for an answer.
   *
   * @throws InvalidUserIdError, InvalidOptionError (as a rejection) as `acquire` does.
   */
  async lookUp(userId: UserId, options: AcquireOptions): Promise<LookUp> {
    const command = this.#command(this.keyFor(userId), this.#submission(options));
    return await lookUp(this.#runtime.store, command);
  }

  /**
   * Declares that this lock will keep records. Throws now, not on the first request, if its store
   * cannot; `check` also tries a record from then on.
   *
   * @param feature the feature that needs records, for the message.
   * @returns the bound on how short an answer may be kept.
   * @throws InvalidOptionError where the store cannot keep answers.
   */
  requireRecords(feature: string): { readonly acquireTimeoutMs: number } {
    checkRecords(this.#runtime.store, feature);
    this.#keepsRecords = true;
    return { acquireTimeoutMs: this.#runtime.times.acquireTimeoutMs };
  }

  /**
   * Runs `work` under the user's lock and releases the lock when its promise has settled; the result
   * or error of `work` is passed on unchanged.
   *
   * @throws LockContendedError when another process held the lock for all of `waitMs`.
   * @throws LockUnavailableError, LockMisconfiguredError or LockClosedError when Redis was of no use.
   * @throws InvalidUserIdError, InvalidOptionError for invalid arguments.
   */
  withLock<Result>(userId: UserId, work: LockedWork<Result>): Promise<Result>;
  withLock<Result>(
    userId: UserId,
    options: WithLockOptions,
    work: LockedWork<Result>,
  ): Promise<Result>;
  async withLock<Result>(
    userId: UserId,
    ...rest: [LockedWork<Result>] | [WithLockOptions, LockedWork<Result>]
  ): Promise<Result> {
    const [options, work] = rest.length === 1 ? [{}, rest[0]] : rest;
    checkOptionNames("withLock", options, ["waitMs"]);
    const { waitMs = 0 } = options;
    checkMs("waitMs", waitMs, 0, 600_000);
    if (typeof work !== "function") throw invalidOption("work", "a function", work);
    const key = this.keyFor(userId);
    const lease = await waitForLease(key, waitMs, () => this.acquire(userId));
    try {
      return await work(lease);
    } finally {
      // Never rejects, so it cannot mask the result or the error of the work.
      await lease.release();
    }
  }

  /**
   * Whether the lock can do its work: one throwaway lock is acquired, extended and released, and an
   * answer is kept for a second where answers are wanted. For boot and readiness checks. Publishes
   * no messages.
   *
   * @throws LockUnavailableError, LockMisconfiguredError or LockClosedError, as a rejection.
   */
  async check(options: CheckOptions = {}): Promise<void> {
    checkOptionNames("check", options, ["submissions"]);
    if (this.#closed !== undefined) throw closedAttempt().cause;
    const { submissions = this.#keepsRecords } = options;
    if (submissions) checkRecords(this.#runtime.store, "submissions");
    const { acquireTimeoutMs } = this.#runtime.times;
    const shortest = { id: "check", retainMs: Math.max(1_000, 2 * acquireTimeoutMs) };
    const submission = submissions ? resolveSubmission(shortest, acquireTimeoutMs) : undefined;
    const command = this.#command(this.keyFor(`check-${uuid()}`), submission);
    await check(this.#runtime, command);
  }

  /**
   * Reads the content of the user's key, for a support page or a shell. Settles within `acquireTimeoutMs`.
   *
   * @throws InvalidUserIdError, and InvalidOptionError where the store cannot show it.
   * @throws LockUnavailableError, LockMisconfiguredError or LockClosedError when Redis was of no use.
   */
  async inspect(userId: UserId): Promise<Inspection> {
    return await inspect(this.#runtime.store, this.#onCallCommand(userId));
  }

  /**
   * Takes the lock away from the holder with `id`. Its holder is notified by its next renewal (its
   * `signal` aborts, reason `freed`), and the key refuses every other acquire until it must have heard:
   * `freeInMs`, never more than its `ttlMs`. A foreign value is deleted at once. A second call for the
   * same id answers as the first. Settles within `acquireTimeoutMs`.
   *
   * @throws InvalidUserIdError, InvalidOptionError for invalid arguments or a store that cannot do it.
   * @throws as `inspect` does; after a LockUnavailableError it may have been done all the same.
   */
  async free(userId: UserId, options: FreeOptions): Promise<FreeResult> {
    return await free(this.#runtime.store, this.#onCallCommand(userId), options);
  }

  /** Counts this lock's operations in this process at the moment, for gauges. Sends nothing. */
  stats(): LockStats {
    return statsOf(this.#runtime);
  }

  /**
   * Ends this lock: new attempts are unavailable at once, live leases go on until they are released
   * or `timeoutMs` has passed (then they are lost), owner ids that are being retired get another
   * `2 × acquireTimeoutMs`. Connections are closed only if the store opened them itself. Never
   * rejects for what Redis did; a second call waits for the first.
   *
   * @throws InvalidOptionError, as a rejection.
   */
  async close(options: CloseOptions = {}): Promise<void> {
    checkOptionNames("close", options, ["timeoutMs"]);
    const { timeoutMs = 5_000 } = options;
    checkMs("timeoutMs", timeoutMs, 0, 600_000);
    this.#closed ??= drain(this.#runtime, timeoutMs).then(() => this.#detach());
    return await this.#closed;
  }

  #submission(options: AcquireOptions): ResolvedSubmission {
    checkOptionNames("acquire", options, ["submission"]);
    const { acquireTimeoutMs } = this.requireRecords("submission");
    return resolveSubmission(options.submission, acquireTimeoutMs);
  }

  /** Rule 1: a fresh owner id for each attempt; one that was given up is never used again. */
  #command(key: string, submission: ResolvedSubmission | undefined): CallerCommand {
    return {
      key,
      keyPrefix: this.keyPrefix,
      ownerId: uuid(),
      times: this.#runtime.times,
      holder: this.#holder,
      submission: submission?.hashes,
      retainMs: submission?.retainMs ?? 0,
      callerContext: captureContext(),
    };
  }

  #onCallCommand(userId: UserId): CallerCommand {
    if (this.#closed !== undefined) throw closedAttempt().cause;
    return this.#command(this.keyFor(userId), undefined);
  }
}
