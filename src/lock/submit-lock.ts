import { v4 as uuid } from "uuid";
import { LockUnavailableError } from "../errors.ts";
import { TimerWheel } from "../timer-wheel.ts";
import { checkMs, checkOptionNames, invalidOption } from "../validation.ts";
import { within } from "../within.ts";
import { type Acquisition, acquire } from "./acquire.ts";
import { type Attempt, attemptError, closedAttempt } from "./attempt.ts";
import { checkLease } from "./check.ts";
import {
  type AcquireMessage,
  acquireChannel,
  type CallerCommand,
  captureContext,
  publish,
} from "./diagnostics.ts";
import { HeldLease, type LeaseRuntime } from "./held-lease.ts";
import { type Lease, UserLease } from "./lease.ts";
import { neverThrowing } from "./never-throwing.ts";
import { resolveLockOptions, type SubmitLockOptions } from "./options.ts";
import { release } from "./release.ts";
import { submitKey, type UserId } from "./submit-key.ts";
import { WaitGroup } from "./wait-group.ts";
import { pauseBeforeRetry, resolveWaitMs, type WithLockOptions } from "./with-lock.ts";

/** What runs under the lock. */
export type LockedWork<Result> = (lease: Lease) => Result | PromiseLike<Result>;

/** For `close`. */
export interface CloseOptions {
  /**
   * How long live leases may go on before they count as lost, in milliseconds; 0 to 600 000.
   * @defaultValue 5_000
   */
  readonly timeoutMs?: number | undefined;
}

/** One lock a user: whoever holds it may submit, everybody else is told so at once. */
export class SubmitLock {
  readonly #keyPrefix: string;
  readonly #runtime: LeaseRuntime;
  readonly #detach: () => Promise<void>;
  #closed: Promise<void> | undefined;
  /** `close` has waited long enough: a lease that comes in now is given back at once. */
  #isDrained = false;

  /** @throws InvalidOptionError naming the option, what was expected and what came. */
  constructor(options: SubmitLockOptions) {
    const { keyPrefix, times, ...given } = resolveLockOptions(options);
    const store = neverThrowing(given.store);
    this.#keyPrefix = keyPrefix;
    // The work keeps the process alive, not its lock. A holder is told at least a tenth of `ttlMs`
    // before the end, so these steps are fine enough.
    const watchdogs = new TimerWheel<HeldLease>(
      Math.max(1, Math.min(times.ttlMs / 200, 50)),
      false,
    );
    this.#runtime = {
      store,
      times,
      // Coarse steps: a few ms late is harmless here, and a busy process is not woken per attempt.
      timers: new TimerWheel(Math.max(1, times.commandTimeoutMs / 100), true),
      watchdogs,
      active: new WaitGroup(),
      releases: new WaitGroup(),
    };
    this.#detach = store.attach(() => {
      for (const lease of watchdogs.armed()) lease.extendNow();
    });
  }

  /**
   * The key that locks this user, such as `lock:submit:42`.
   *
   * @throws InvalidUserIdError when the user id is no usable id.
   */
  keyFor(userId: UserId): string {
    return submitKey(this.#keyPrefix, userId);
  }

  /**
   * One attempt to take the user's lock. Settles within `acquireTimeoutMs`, and never rejects for
   * what Redis or a rival did.
   *
   * @throws InvalidUserIdError (as a rejection) when the user id is no usable id.
   */
  acquire(userId: UserId): Promise<Attempt> {
    // What throws in here rejects.
    return new Promise((resolve) => this.#attempt(this.keyFor(userId), resolve));
  }

  /**
   * Runs `work` under the user's lock and gives the lock back when its promise has settled; what
   * `work` returned or threw is passed on unchanged.
   *
   * @throws LockContendedError when somebody else held the lock for all of `waitMs`.
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
    const waitMs = resolveWaitMs(options);
    if (typeof work !== "function") throw invalidOption("work", "a function", work);
    const lease = await this.#waitFor(this.keyFor(userId), waitMs);
    try {
      return await work(lease);
    } finally {
      // Never rejects, so it cannot mask what the work returned or threw.
      await lease.release();
    }
  }

  /**
   * Whether the lock can do its work: one throwaway lock is acquired, extended and released. For
   * boot and readiness checks. Publishes no messages.
   *
   * @throws LockUnavailableError, LockMisconfiguredError or LockClosedError, as a rejection.
   */
  async check(): Promise<void> {
    if (this.#closed !== undefined) throw closedAttempt().cause;
    const command = this.#command(this.keyFor(`check-${uuid()}`));
    const acquisition = await new Promise<Acquisition>((ended) => this.#acquire(command, ended));
    const lease = this.#leaseOf(command, acquisition);
    if (lease !== undefined) return await checkLease(lease, this.#runtime.store);
    throw acquisition.cause ?? new LockUnavailableError("the throwaway lock was contended");
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
    this.#closed ??= this.#close(timeoutMs);
    return await this.#closed;
  }

  /** Rule 14. */
  async #close(timeoutMs: number): Promise<void> {
    const { active, releases, timers, times, watchdogs } = this.#runtime;
    const drained = active.wait();
    await within(timeoutMs, drained);
    this.#isDrained = true;
    for (const lease of watchdogs.armed()) lease.lose("closed");
    // Also for the attempts that are still under way, whose owner ids may have to be retired.
    const retired = drained.then(() => releases.wait());
    await within(2 * times.acquireTimeoutMs, retired);
    timers.unref();
    await this.#detach();
  }

  #attempt(key: string, ended: (attempt: Attempt) => void): void {
    if (this.#closed !== undefined) {
      ended(closedAttempt());
      return;
    }
    const command = this.#command(key);
    this.#acquire(command, (acquisition) => {
      publishAcquire(command, acquisition);
      ended(this.#attemptOf(command, acquisition));
    });
  }

  /** Rule 1: a fresh owner id for each attempt; one that was given up is never used again. */
  #command(key: string): CallerCommand {
    return { key, ownerId: uuid(), times: this.#runtime.times, callerContext: captureContext() };
  }

  #acquire(command: CallerCommand, ended: (acquisition: Acquisition) => void): void {
    this.#runtime.active.add();
    acquire(this.#runtime.store, command, this.#runtime.timers, ended);
  }

  #attemptOf(command: CallerCommand, acquisition: Acquisition): Attempt {
    const { outcome, confirmed, expiresInMs, cause } = acquisition;
    const held = this.#leaseOf(command, acquisition);
    if (held !== undefined) return { outcome: "acquired", lease: new UserLease(held), confirmed };
    if (outcome === "acquired") return closedAttempt();
    if (outcome === "contended") return { outcome, expiresInMs };
    return { outcome, cause: cause ?? new LockUnavailableError("no cause was given") };
  }

  /** Makes the lease, or retires the owner id where there is none to be. */
  #leaseOf(command: CallerCommand, acquisition: Acquisition): HeldLease | undefined {
    const { outcome, startedAt, inFlight, mayHold } = acquisition;
    if (outcome === "acquired" && !this.#isDrained) {
      // The lease takes the attempt's place among what is active, without a moment in between.
      return new HeldLease(this.#runtime, command, startedAt, inFlight);
    }
    // Rule 5.
    if (outcome === "acquired" || mayHold) release(this.#runtime, command, inFlight, 0);
    this.#runtime.active.done();
    return undefined;
  }

  async #waitFor(key: string, waitMs: number): Promise<Lease> {
    const endsAt = performance.now() + waitMs;
    for (let round = 0; ; round++) {
      const attempt = await new Promise<Attempt>((resolve) => this.#attempt(key, resolve));
      if (attempt.outcome === "acquired") return attempt.lease;
      const isHopeless =
        attempt.outcome === "unavailable" && !(attempt.cause instanceof LockUnavailableError);
      if (isHopeless || performance.now() >= endsAt) throw attemptError(key, attempt);
      await pauseBeforeRetry(round, endsAt);
    }
  }
}

function publishAcquire(command: CallerCommand, acquisition: Acquisition): void {
  if (!acquireChannel.hasSubscribers) return;
  const { outcome, startedAt, copies, cause } = acquisition;
  const durationMs = performance.now() - startedAt;
  const message: AcquireMessage = { key: command.key, outcome, durationMs, copies, cause };
  publish(acquireChannel, command, message);
}
