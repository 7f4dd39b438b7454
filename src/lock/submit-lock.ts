import { v4 as uuid } from "uuid";
import { checkMs, checkOptionNames, hasMembers, invalidOption } from "../validation.ts";
import { Acquiring } from "./acquire.ts";
import { type Attempt, closedAttempt, type LockedWork, type SubmissionAttempt } from "./lease.ts";
import {
  type CheckOptions,
  check,
  type ForgetOptions,
  type ForgetResult,
  type FreeOptions,
  forget,
  free,
  inspect,
  type LockStats,
  statsOf,
} from "./on-call.ts";
import { type OnceOptions, type OnceResult, once, type WithLockOptions, withLock } from "./once.ts";
import { resolveLockOptions, type SubmitLockOptions } from "./options.ts";
import { acquireOrWait, type LookUp, lookUp, type RepeatAttempt } from "./repeats.ts";
import { type CallerCommand, captureContext, InFlight, LockRuntime } from "./runtime.ts";
import type { FreeResult, Inspection } from "./store.ts";
import {
  type AcquireOptions,
  checkId,
  checkRecords,
  type IdentifiedOptions,
  identify,
  noFingerprint,
  type ResolvedSubmission,
  resolveIdentity,
  type Submission,
} from "./submission.ts";
import { submitKey, type UserId } from "./submit-key.ts";

/** Options of `close`. */
export interface CloseOptions {
  /**
   * How long `close` waits for leases to end before they are lost, in milliseconds; 0 to 600 000.
   * @defaultValue 5_000
   */
  readonly timeoutMs?: number | undefined;
}

/** Guards of another copy of the package recognise the lock by this symbol. */
const lockBrand = Symbol.for("submit-lock.lock");

/** Whether a value is a {@link SubmitLock}, of this copy of the package or of another one. */
export function isSubmitLock(value: unknown): value is SubmitLock {
  return typeof value === "object" && value !== null && lockBrand in value;
}

/** One lock for each user, with one holder at a time: another attempt neither gets it nor waits. */
export class SubmitLock {
  /** How the key of each lock begins, before the user id. */
  readonly keyPrefix: string;
  readonly #keyOf: ((userId: string) => string) | undefined;
  readonly #holder: string;
  readonly #runtime: LockRuntime;
  readonly #detach: () => Promise<void>;
  #keepsRecords = false;
  #closed: Promise<void> | undefined;

  /** @throws InvalidOptionError that names the option, the expected values and the given one. */
  constructor(options: SubmitLockOptions) {
    const { store, keyPrefix, keyOf, times, holder, seal } = resolveLockOptions(options);
    this.keyPrefix = keyPrefix;
    this.#keyOf = keyOf;
    this.#holder = holder;
    this.#runtime = new LockRuntime(store, times, seal);
    this.#detach = store.attach(() => this.#runtime.connected());
  }

  /** Returns the user's key. @throws InvalidUserIdError, InvalidOptionError, errors of `keyOf`. */
  keyFor(userId: UserId): string {
    return submitKey(this.keyPrefix, userId, this.#keyOf);
  }

  /**
   * One attempt to take the user's lock. Settles within `acquireTimeoutMs`, and never rejects
   * because of Redis or another holder.
   * @throws as `keyFor` does (as a rejection).
   */
  acquire(userId: UserId): Promise<Attempt>;
  /**
   * Acquires for a submission: `completed` if its answer is kept, `mismatched` if its id was used
   * with a different fingerprint. End its lease with `complete`.
   * @throws InvalidOptionError (as a rejection): invalid submission, or a store without records.
   */
  acquire(userId: UserId, options: AcquireOptions): Promise<SubmissionAttempt>;
  acquire(userId: UserId, options?: AcquireOptions): Promise<SubmissionAttempt> {
    // An error that is thrown in this function rejects the promise.
    return new Promise((resolve) => {
      const submission = options === undefined ? undefined : this.#submission(userId, options);
      const key = this.keyFor(userId);
      if (this.#closed !== undefined) resolve(closedAttempt());
      else new Acquiring(this.#runtime, this.#command(key, submission), resolve).begin();
    });
  }

  /**
   * Looks up the state of a submission, without taking the lock. Settles within `commandTimeoutMs`;
   * with an `id` and a `seal` within twice that, because the record may be in two places.
   * @param options the submission, or its 22 characters, such as `submission.id` of a guarded request.
   * @throws InvalidUserIdError, InvalidOptionError (as a rejection) as `acquire` does.
   * @throws LockClosedError (as a rejection) once `close` has waited for the leases.
   */
  async lookUp(userId: UserId, options: AcquireOptions | { readonly id: string }): Promise<LookUp> {
    if (this.#runtime.isDrained) throw closedAttempt().cause;
    const names = ["id", "submission"];
    checkOptionNames("lookUp", options, hasMembers(options, names) ? ["id"] : names);
    const commands =
      "id" in options
        ? this.#recordsOf(userId, options.id)
        : [this.#command(this.keyFor(userId), this.#submission(userId, options))];
    return await lookUp(this.#runtime, commands);
  }

  /**
   * For guards: acquires for a submission; while the same one is in flight, waits for its end
   * instead, and never takes the lock. A caller that was waiting when the run ended is `told` the
   * answer of `ToldOptions`. Settles within `waitMs` plus an attempt and two look-ups.
   * @param waitMs in milliseconds, 0 to 30 000; 0 not to wait.
   * @param isAbandoned returns `true` once the client has gone, which ends the wait. If it throws,
   *   this call rejects with that error.
   * @throws InvalidUserIdError, InvalidOptionError (as a rejection) as `acquire` does.
   */
  async acquireOrWait(
    userId: UserId,
    options: IdentifiedOptions,
    waitMs: number,
    isAbandoned?: () => boolean,
  ): Promise<RepeatAttempt> {
    checkOptionNames("acquireOrWait", options, ["identity", "retainMs"]);
    const submission = this.#identified(options);
    const key = this.keyFor(userId);
    if (this.#closed !== undefined) return closedAttempt();
    const commandOf = () => this.#command(key, submission);
    return await acquireOrWait(this.#runtime, commandOf, waitMs, isAbandoned);
  }

  /**
   * Declares that this lock will keep records, so that `check` also tries one.
   * @param feature the feature that needs records, for the message.
   * @returns the lock's `acquireTimeoutMs`: an answer is kept for at least twice as long.
   * @throws InvalidOptionError, now and not on the first request, where the store cannot keep answers.
   */
  requireRecords(feature: string): { readonly acquireTimeoutMs: number } {
    checkRecords(this.#runtime.store, feature);
    this.#keepsRecords = true;
    return { acquireTimeoutMs: this.#runtime.times.acquireTimeoutMs };
  }

  /**
   * Runs `work` under the user's lock and releases the lock when `work` has settled; the result or
   * error of `work` is passed on unchanged.
   *
   * @example
   * ```ts
   * const total = await lock.withLock(user.id, (lease) => addUp(user, lease.signal));
   * ```
   *
   * @throws LockContendedError when the lock was still contended at the end of `waitMs`.
   * @throws LockUnavailableError, LockMisconfiguredError or LockClosedError of the last attempt.
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
    const key = this.keyFor(userId);
    return await withLock(this.#runtime, key, () => this.acquire(userId), options, work);
  }

  /**
   * Runs `work` once for a submission, under the user's lock, and keeps its value: a repeat gets
   * that value, and does not run. A repeat during the work waits for the value, for `waitMs`
   * and two look-ups at most. Resolves when the value is kept, or `acquireTimeoutMs` after the work.
   *
   * The value is kept as JSON of at most 1 MiB; a longer one is only returned. Where `work` throws
   * or calls `lease.release`, a repeat runs; after `lease.complete` it gets AnswerUnavailableError.
   * A repeat also runs where the process dies, or the lease is lost, before the record is written:
   * `SubmissionTable` of `submit-lock/sql` with `lease.submission` prevents a second order.
   *
   * @example
   * ```ts
   * const { value, replayed } = await lock.once(user.id, { id: payment.id }, () => pay(payment));
   * ```
   *
   * @throws whatever `work` throws.
   * @throws LockContendedError: another submission of the user (or its cooldown) has the lock; the
   * same submission is still in flight (`sameSubmission`), or has ended without a value (`hasEnded`).
   * @throws SubmissionMismatchError for a known id with another fingerprint.
   * @throws AnswerUnavailableError where the submission was completed, and no value is kept.
   * @throws InvalidValueError for a value that JSON cannot say. `work` does not run again.
   * @throws LockUnavailableError, LockMisconfiguredError or LockClosedError: this call ran no work.
   * @throws InvalidUserIdError, InvalidOptionError for invalid arguments, or a store without records.
   */
  async once<Value>(
    userId: UserId,
    submission: Submission,
    work: LockedWork<Value>,
    options: OnceOptions = {},
  ): Promise<OnceResult<Value>> {
    const asked = { identity: identify(userId, submission), retainMs: submission.retainMs };
    const acquire = (waitMs: number) => this.acquireOrWait(userId, asked, waitMs);
    return await once(this.#runtime, this.keyFor(userId), acquire, options, work);
  }

  /**
   * Resolves if the lock can do its work: two throwaway locks are acquired, extended and released;
   * with `submissions` one of them is completed. For boot and readiness checks. Publishes no message.
   *
   * It takes three round trips, and rejects when one has no answer within `acquireTimeoutMs`. Call
   * it every few seconds at most. For the end of an outage, listen to `submit-lock:store`.
   * @throws LockUnavailableError, LockMisconfiguredError, LockClosedError, InvalidOptionError.
   */
  async check(options: CheckOptions = {}): Promise<void> {
    checkOptionNames("check", options, ["submissions"]);
    if (this.#closed !== undefined) throw closedAttempt().cause;
    const { submissions = this.#keepsRecords } = options;
    if (typeof submissions !== "boolean") {
      throw invalidOption("submissions", "true or false", submissions);
    }
    if (submissions) checkRecords(this.#runtime.store, "submissions");
    const { seal, times } = this.#runtime;
    const { acquireTimeoutMs } = times;
    const identity = { id: noFingerprint, fingerprint: undefined };
    const shortest = { identity, retainMs: Math.max(1_000, 2 * acquireTimeoutMs) };
    const submission = submissions ? resolveIdentity(shortest, acquireTimeoutMs, seal) : undefined;
    const throwaway = () => this.#command(this.keyFor(`check-${uuid()}`), submission);
    // Two locks in one turn, as from two customers: this also tests a call that carries both.
    const both = [throwaway(), throwaway()];
    // With submissions, one is completed and one released: a permission may be missing for either.
    const checks = both.map((command, index) =>
      check(this.#runtime, { ...command, isCheck: true }, submissions && index === 0),
    );
    await Promise.all(checks);
  }

  /**
   * Reads the user's key, for a support page or a shell. Settles within `acquireTimeoutMs`.
   * @throws as {@link keyFor} does, and InvalidOptionError for a store without `inspect`.
   * @throws LockUnavailableError, LockMisconfiguredError or LockClosedError without an answer.
   */
  async inspect(userId: UserId): Promise<Inspection> {
    return await inspect(this.#runtime.store, this.#onCallCommand(userId));
  }

  /**
   * Takes the lock away from the holder with `id`. The holder is notified by its next extend, if one
   * is due (its `signal` aborts, reason `freed`; with `now` `overtaken`), and no acquire takes the key
   * for `freeInMs`, the rest of its life. A cooldown and a foreign value that begins with no UUID are
   * deleted at once. A second call is `freed`, `already-free` or `changed`.
   * @throws InvalidUserIdError, InvalidOptionError for invalid arguments or a store without `free`.
   * @throws as `inspect` does; after a LockUnavailableError the lock may have been freed.
   */
  async free(userId: UserId, options: FreeOptions): Promise<FreeResult> {
    return await free(this.#runtime.store, this.#onCallCommand(userId), options);
  }

  /**
   * Deletes the kept answer of a submission, so that its next repeat runs. A complete under way may
   * write it again, for ten minutes. Settles within 2 × `acquireTimeoutMs`, 3 × with `seal`.
   * @throws as `free` does; after a LockUnavailableError the answer may have been forgotten.
   */
  async forget(userId: UserId, options: ForgetOptions): Promise<ForgetResult> {
    if (this.#closed !== undefined) throw closedAttempt().cause;
    return await forget(this.#runtime, (id) => this.#recordsOf(userId, id), options);
  }

  /** Counts the operations of this `SubmitLock` that are under way, for gauges. Sends nothing. */
  stats(): LockStats {
    return statsOf(this.#runtime);
  }

  /**
   * Ends this lock. New attempts are unavailable at once. Leases, and calls that wait for the end
   * of a submission, go on for `timeoutMs` at most; then leases are lost. Releases then get
   * `2 × acquireTimeoutMs`; completes as long, or what is left of `timeoutMs` if that is longer.
   * Closes only connections that the store opened. Never rejects because of Redis; a second call
   * waits for the first. Without it, an unanswered complete keeps the process alive for ten minutes.
   * @throws InvalidOptionError, as a rejection.
   */
  async close(options: CloseOptions = {}): Promise<void> {
    checkOptionNames("close", options, ["timeoutMs"]);
    const { timeoutMs = 5_000 } = options;
    checkMs("timeoutMs", timeoutMs, 0, 600_000);
    this.#closed ??= this.#runtime.drain(timeoutMs).then(() => this.#detach());
    return await this.#closed;
  }

  #submission(userId: UserId, options: AcquireOptions): ResolvedSubmission {
    checkOptionNames("acquire", options, ["submission"]);
    const identity = identify(userId, options.submission);
    return this.#identified({ identity, retainMs: options.submission.retainMs });
  }

  #identified(options: IdentifiedOptions): ResolvedSubmission {
    const { acquireTimeoutMs } = this.requireRecords("submission");
    return resolveIdentity(options, acquireTimeoutMs, this.#runtime.seal);
  }

  /**
   * Returns the places where a record may be: with a seal, a caller may pass the submission's id or
   * its HMAC, as Redis' keys show it.
   */
  #recordsOf(userId: UserId, id: string): CallerCommand[] {
    checkRecords(this.#runtime.store, "id");
    const identity = { id: checkId("id", id), fingerprint: undefined };
    const hashed = this.#runtime.seal?.hashesOf(id, noFingerprint).id ?? id;
    return [...new Set([hashed, id])].map((each) => ({
      ...this.#command(this.keyFor(userId), undefined),
      identity,
      submission: { id: each, fingerprint: noFingerprint },
    }));
  }

  /** Rule 1: a fresh owner id for each attempt. */
  #command(key: string, submission: ResolvedSubmission | undefined): CallerCommand {
    return {
      key,
      keyPrefix: this.keyPrefix,
      ownerId: uuid(),
      times: this.#runtime.times,
      holder: this.#holder,
      identity: submission?.identity,
      submission: submission?.hashes,
      retainMs: submission?.retainMs ?? 0,
      callerContext: captureContext(),
      isCheck: false,
      inFlight: new InFlight(),
    };
  }

  #onCallCommand(userId: UserId): CallerCommand {
    if (this.#closed !== undefined) throw closedAttempt().cause;
    return this.#command(this.keyFor(userId), undefined);
  }
}

// Not declared in the class: with a symbol of its own, each copy's type would refuse other copies.
Object.defineProperty(SubmitLock.prototype, lockBrand, { value: true });
