import { v4 as uuid } from "uuid";
import { LockUnavailableError } from "../errors.ts";
import { TimerWheel } from "../timer-wheel.ts";
import { type Acquisition, acquire } from "./acquire.ts";
import { type Attempt, closed, failure } from "./attempt.ts";
import { check } from "./check.ts";
import {
  type AcquireMessage,
  acquireChannel,
  asker,
  type CallerCommand,
  publish,
} from "./diagnostics.ts";
import { HeldLease, type Lease, type LockRuntime } from "./lease.ts";
import { neverThrowing } from "./never-throwing.ts";
import {
  checkMs,
  checkOptionNames,
  invalidOption,
  resolveLockOptions,
  type SubmitLockOptions,
} from "./options.ts";
import { Retirements } from "./releases.ts";
import { submitKey, type UserId } from "./submit-key.ts";
import { pause, resolveWaitMs, type WithLockOptions, within } from "./waiting.ts";

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
  readonly #keeper: LockRuntime;
  readonly #detach: () => Promise<void>;
  /** Attempts under way and live leases. */
  #busy = 0;
  #closed: Promise<void> | undefined;
  #drained: (() => void) | undefined;
  /** `close` has waited long enough: a lease that comes in now is given back at once. */
  #over = false;

  /** @throws InvalidOptionError naming the option, what was expected and what came. */
  constructor(options: SubmitLockOptions) {
    const { keyPrefix, times, ...given } = resolveLockOptions(options);
    const store = neverThrowing(given.store);
    this.#keyPrefix = keyPrefix;
    // So late as nobody notices (a holder is told up to 1 s before the end), and so coarse that a busy process is not woken all the time.
    const timers = new TimerWheel(Math.max(1, times.commandTimeoutMs / 100), true);
    // The work keeps the process alive, not its lock.
    const watchdogs = new TimerWheel<HeldLease>(
      Math.max(1, Math.min(times.ttlMs / 200, 50)),
      false,
    );
    this.#keeper = {
      store,
      times,
      timers,
      watchdogs,
      retirements: new Retirements(store, times, timers),
      left: () => this.#left(),
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
   * @throws InvalidUserIdError, InvalidOptionError for unusable arguments.
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
   * Whether the lock can do its work: one throwaway lock is acquired and released. For boot and
   * readiness checks.
   *
   * @throws LockUnavailableError, LockMisconfiguredError or LockClosedError, as a rejection.
   */
  async check(): Promise<void> {
    if (this.#closed !== undefined) throw closed().cause;
    await check(this.#keeper, this.keyFor(`check-${uuid()}`));
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

  async #close(timeoutMs: number): Promise<void> {
    const { timers, retirements, times, watchdogs } = this.#keeper;
    const drained = new Promise<void>((resolve) => {
      this.#drained = resolve;
    });
    this.#checkDrained();
    await within(timeoutMs, drained);
    this.#over = true;
    for (const lease of watchdogs.armed()) lease.lose("closed");
    // Also for the attempts that are still under way, whose owner ids may have to be retired.
    const idle = drained.then(() => retirements.idle());
    await within(2 * times.acquireTimeoutMs, idle);
    timers.unref();
    await this.#detach();
  }

  #checkDrained(): void {
    if (this.#busy === 0) this.#drained?.();
  }

  #left(): void {
    this.#busy--;
    this.#checkDrained();
  }

  #attempt(key: string, ended: (attempt: Attempt) => void): void {
    if (this.#closed !== undefined) {
      ended(closed());
      return;
    }
    const { timers, store, times } = this.#keeper;
    const command: CallerCommand = { key, ownerId: uuid(), times, asker: asker() };
    this.#busy++;
    acquire(store, command, timers, (acquisition) => {
      const attempt = this.#settle(command, acquisition);
      // Otherwise its lease takes its place among what is busy, without a moment in between.
      if (attempt.outcome !== "acquired") this.#left();
      ended(attempt);
    });
  }

  #settle(command: CallerCommand, acquisition: Acquisition): Attempt {
    publishAcquire(command, acquisition);
    const { outcome, startedAt, inFlight } = acquisition;
    if (outcome === "acquired" && !this.#over) {
      const lease = new HeldLease(this.#keeper, command, startedAt, inFlight);
      return { outcome, lease, confirmed: acquisition.confirmed };
    }
    if (outcome === "acquired" || acquisition.mayHold) {
      this.#keeper.retirements.begin(command, inFlight, 0);
    }
    if (outcome === "acquired") return closed();
    if (outcome === "contended") return { outcome, expiresInMs: acquisition.expiresInMs };
    return { outcome, cause: acquisition.cause ?? new LockUnavailableError("no cause was given") };
  }

  async #waitFor(key: string, waitMs: number): Promise<Lease> {
    const endsAt = performance.now() + waitMs;
    for (let round = 0; ; round++) {
      // A fresh owner id each time: one that was given up is never used again.
      const attempt = await new Promise<Attempt>((resolve) => this.#attempt(key, resolve));
      if (attempt.outcome === "acquired") return attempt.lease;
      const hopeless =
        attempt.outcome === "unavailable" && !(attempt.cause instanceof LockUnavailableError);
      if (hopeless || performance.now() >= endsAt) throw failure(key, attempt);
      await pause(round, endsAt);
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
