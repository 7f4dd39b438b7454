import { AsyncResource } from "node:async_hooks";
import { LockLostError, type LostReason } from "../errors.ts";
import { performance, wallClock } from "../time.ts";
import { Timer } from "../timers.ts";
import { lostChannel } from "./channels.ts";
import { Completing, type OnCompleted } from "./complete.ts";
import { explanations, lookedAt, outlives } from "./lost-lease.ts";
import { type AnswerToStore, encodeRecord, type RecordContent } from "./record.ts";
import { type OnReleased, Releasing } from "./release.ts";
import {
  type CallerCommand,
  isNoAnswer,
  type LockRuntime,
  publish,
  toLockError,
  write,
} from "./runtime.ts";
import type { LockTimes, OwnedReply } from "./store.ts";

/**
 * Rule 7: the clock of one attempt, and the times of its lease by that clock, all in ms. It is the
 * monotonic clock, which stands still while a machine sleeps, plus the most that the wall clock has
 * gained on it from each extend to the next. It never goes back, as the wall clock may: times that
 * were noted before would come too late.
 */
export class LeaseClock {
  readonly startedAt: number = performance.now();
  /** How far this clock is ahead of the monotonic clock; this never falls. */
  aheadMs = 0;
  /** How far it was when the last extend was sent. */
  #aheadAtSend = 0;
  /** The least that the wall clock was ahead of the monotonic clock since then. */
  #leastOffset: number = wallClock.now() - this.startedAt;
  /** Before this time the key cannot have run out. */
  validUntil = 0;
  /** When the first extend after the last success was sent; `undefined` if none was. */
  silentSince: number | undefined;
  /** When the next extend is due; ∞ if none is needed for the rest of `maxHoldMs`. */
  extendAt = 0;
  endsAt = 0;
  /** When the holder is notified that the lease runs out: early enough to stop before `endsAt`. */
  notifyAt = 0;

  now(): number {
    const now = performance.now();
    const offset = wallClock.now() - now;
    this.#leastOffset = Math.min(this.#leastOffset, offset);
    // The wall clock shows whole milliseconds, and seems to gain up to 1 ms.
    this.aheadMs = Math.max(this.aheadMs, this.#aheadAtSend + offset - this.#leastOffset - 1);
    return now + this.aheadMs;
  }

  get isValid(): boolean {
    return this.now() < this.validUntil;
  }

  /** Called for the acquire and each successful extend, in any order. @param sentAt send time. */
  renewed(sentAt: number, { maxHoldMs, ttlMs }: LockTimes): void {
    this.silentSince = undefined;
    // Less 1 % for clocks of different speeds and 2 ms for the granularity of Redis' expiry, as in
    // Redlock (https://redis.io/docs/latest/develop/use/patterns/distributed-locks/).
    this.validUntil = Math.max(this.validUntil, sentAt + 0.99 * ttlMs - 2);
    const isLast = maxHoldMs <= ttlMs || this.validUntil >= this.startedAt + maxHoldMs;
    this.extendAt = isLast ? Number.POSITIVE_INFINITY : Math.max(this.extendAt, sentAt + ttlMs / 3);
    this.endsAt = Math.min(this.validUntil, this.startedAt + maxHoldMs);
    this.notifyAt = this.endsAt - Math.min(1_000, ttlMs / 10);
  }

  /** Plans the next extend for the case that this one stays without an answer. */
  extendSent(sentAt: number, { commandTimeoutMs, ttlMs }: LockTimes): void {
    this.silentSince ??= sentAt;
    this.extendAt = sentAt + Math.max(commandTimeoutMs, ttlMs / 15);
    // Begin anew, or a wall clock that was set forward and back would hide a sleep from here on.
    this.#aheadAtSend = this.aheadMs;
    this.#leastOffset = wallClock.now() - performance.now();
  }
}

/**
 * A lease and its watchdog. Held until `release` or `complete` is called, or the lease is lost:
 *
 * ```
 * held ── release() ───────────────────────────────────▶ released
 *   │ ─── complete() ──────────────────────────────────▶ completing ── reported ──▶ completed
 *   │ ─── an extend finds its own tombstone ───────────▶ lost: freed
 *   │ ─── an extend finds no key or anything else ─────▶ lost: overtaken
 *   │ ─── not extended in time ────────────────────────▶ lost: expired
 *   │ ─── held for maxHoldMs ──────────────────────────▶ lost: max-hold
 *   └──── close() has waited long enough ──────────────▶ lost: closed
 * ```
 */
export class HeldLease extends Timer {
  readonly runtime: LockRuntime;
  readonly command: CallerCommand;
  readonly fencingToken: number | undefined;
  readonly clock: LeaseClock;
  /** At the grant, a request of the acquire was still in flight: it may take the key once more. */
  readonly #mayBeRetaken: boolean;
  readonly #storeOffsetMs: number;
  /** How far the lease's clock was ahead of the monotonic clock at the last successful extend. */
  #aheadMs = 0;
  #lost: LockLostError | undefined;
  #isReleased = false;
  /** When the watchdog stops at the latest; ∞ until complete was called. */
  #extendUntil: number = Number.POSITIVE_INFINITY;
  #isWatched = true;
  #aborter: AbortController | undefined;
  /** The context of the code that first asked for the signal: its listeners must run there. */
  #signalContext: AsyncResource | undefined;
  /**
   * Set once the lease is lost, and called before a release or complete: the work has ended. Rule 19:
   * if the order has outlived its lock, this ends its trace.
   */
  orderEnds: (() => void) | undefined;
  /** Called once, when the lease is lost. This function may call `release` or `complete`. */
  onLost: (() => void) | undefined;
  /** Rule 19: the one retire of a lost lease, begun by the lease itself or by `release`. */
  #retired: Promise<Parameters<OnReleased>> | undefined;

  /**
   * @param storeOffsetMs the store's time at the grant, minus the monotonic time when the answer was
   * read. A late answer makes a cooldown end earlier, never later.
   */
  constructor(
    runtime: LockRuntime,
    command: CallerCommand,
    clock: LeaseClock,
    fencingToken: number | undefined,
    storeOffsetMs: number,
  ) {
    super();
    this.runtime = runtime;
    this.command = command;
    this.#mayBeRetaken = !command.inFlight.isEmpty;
    this.clock = clock;
    clock.renewed(clock.startedAt, command.times);
    this.fencingToken = fencingToken;
    this.#storeOffsetMs = storeOffsetMs;
    this.#setTimer();
  }

  /** The signal of the lease, made on first use, because most handlers never look at it. */
  get signal(): AbortSignal {
    this.look();
    if (this.#aborter === undefined) {
      this.#aborter = new AbortController();
      this.#signalContext = new AsyncResource("submit-lock");
      if (this.#lost !== undefined) this.#aborter.abort(this.#lost);
      lookedAt(this.#aborter.signal, () => this.look());
    }
    return this.#aborter.signal;
  }

  remainingMs(): number {
    return this.isHeld ? Math.max(0, this.clock.endsAt - this.clock.now()) : 0;
  }

  /**
   * Rule 7: loses the lease from `notifyAt` on, although its timer has not fired. A process that
   * was stopped may run the handler before that timer, and the handler would place a second order.
   */
  look(): void {
    if (this.clock.now() >= this.clock.notifyAt) this.lose(this.#endReason);
  }

  get #endReason(): LostReason {
    return this.clock.extendAt < Number.POSITIVE_INFINITY ? "expired" : "max-hold";
  }

  get isHeld(): boolean {
    return !this.#isReleased && this.#lost === undefined;
  }

  /** The store's clock, in whole ms: its time at the acquire plus the time since. */
  #storeTimeMs(): number {
    return Math.ceil(this.clock.now() + this.#storeOffsetMs);
  }

  /** Rule 19: the end of a cooldown by the monotonic clock, which no step makes later; 0 for none. */
  #coolsUntil(cooldownMs: number): number {
    if (this.#lost !== undefined || !this.clock.isValid) return 0;
    return Math.floor(performance.now() + this.#storeOffsetMs) + cooldownMs;
  }

  /** Call once, and not after `complete`. @param told the answer of the run (rule 25). */
  release(onReleased?: OnReleased, cooldownMs = 0, told?: AnswerToStore): void {
    this.#unwatch();
    this.#isReleased = true;
    if (this.#lost !== undefined) {
      this.#retire(onReleased);
      return;
    }
    this.runtime.active.done();
    const { clock, command, runtime } = this;
    const record =
      told && command.submission && encodeRecord(command, told, this.#storeTimeMs(), runtime.seal);
    // Rule 5: this release also retires the requests of the acquire that are in flight.
    const cooldownUntilMs = cooldownMs && this.#coolsUntil(cooldownMs);
    const ends = { clock, onReleased, cooldownUntilMs, told: record };
    new Releasing(this.runtime, this.command, ends).begin();
  }

  /** Call once, and not after `release`. @throws InvalidOptionError without a submission. */
  complete(content: RecordContent, cooldownMs: number, onCompleted: OnCompleted): void {
    const now = this.clock.now();
    const isLost = this.#lost !== undefined;
    const completing = new Completing(
      this.runtime,
      this.command,
      content,
      this.#storeTimeMs(),
      cooldownMs && this.#coolsUntil(cooldownMs),
      now - this.clock.startedAt,
      isLost ? undefined : this.clock,
      (outcome, cause) => {
        if (!isLost) this.#unwatch();
        onCompleted(outcome, cause);
      },
    );
    if (!isLost) this.runtime.active.done();
    this.#isReleased = true;
    this.onLost = undefined;
    // Rule 17: the watchdog keeps the lock until the complete is answered, `patienceMs` at most.
    this.#extendUntil = now + this.runtime.patienceMs;
    // Rule 15: this also records the answer of a lost lease: a record does not need the lock.
    completing.begin();
  }

  lose(reason: LostReason): void {
    if (!this.isHeld) return;
    const { command, fencingToken } = this;
    const why = explanations[reason];
    const lost = new LockLostError(`the lease was lost: ${why}`, reason, command.key);
    this.#lost = lost;
    this.orderEnds = () => this.#unwatch();
    this.#unwatch();
    this.runtime.active.done();
    const durationMs = this.clock.now() - this.clock.startedAt;
    publish(lostChannel, command, { outcome: reason, fencingToken, durationMs });
    // Rule 19: a lost lease retires itself. Where the key may still hold the owner id, the retire
    // waits until the lease ends, so that the holder can stop; after `close` the key expires.
    if (reason === "freed" || reason === "overtaken") this.#retire();
    this.onLost?.();
    // After `close`, leave the trace now: the connection may be closed when the lease's time ends.
    if (reason === "closed") this.#outlives(reason);
    // Due at the lease's end by the monotonic clock: a wall clock set forward does not end the key.
    else this.runtime.watchdogs.set(this, this.clock.endsAt - this.#aheadMs);
    // Abort last: listeners of the signal may call `release` or `complete`.
    this.#signalContext?.runInAsyncScope(() => this.#aborter?.abort(lost));
  }

  #outlives(reason: LostReason): void {
    const heldMs = this.clock.now() - this.clock.startedAt;
    const endTrace = outlives(this.runtime, this.command, reason, this.#storeTimeMs(), heldMs);
    this.orderEnds = () => {
      this.orderEnds = undefined;
      endTrace();
    };
  }

  #retire(onReleased?: OnReleased): void {
    // An earlier retire may have deleted the key: then this release finds the lease gone.
    const isGone = this.#retired !== undefined;
    this.#retired ??= new Promise((resolve) => {
      const onRetired: OnReleased = (...result) => resolve(result);
      new Releasing(this.runtime, this.command, { onReleased: onRetired }).begin();
    });
    if (onReleased === undefined) return;
    void this.#retired.then(([outcome, cause]) =>
      onReleased(isGone && outcome === "released" ? "gone" : outcome, cause),
    );
  }

  /** Called when a connection came up: earlier extends may have been lost. */
  extendNow(): void {
    // A listener of another lease's signal may have ended this one a moment ago.
    if (this.#isWatched && this.clock.extendAt < Infinity) this.#extend(this.clock.now());
  }

  #unwatch(): void {
    this.#isWatched = false;
    this.runtime.watchdogs.clear(this);
  }

  #setTimer(): void {
    const inMs = Math.min(this.clock.extendAt, this.clock.notifyAt) - this.clock.now();
    this.runtime.watchdogs.set(this, performance.now() + inMs);
  }

  override onDue(): void {
    if (this.#lost !== undefined) {
      // A complete deletes the key itself, once the record is written.
      if (!this.#isReleased) this.#retire();
      this.#outlives(this.#lost.reason);
      return;
    }
    const now = this.clock.now();
    const { extendAt, notifyAt } = this.clock;
    if (this.#isReleased && now >= this.#extendUntil) this.#unwatch();
    else if (now >= notifyAt) this.#end(this.#endReason);
    else if (now >= extendAt) this.#extend(now);
    else this.#setTimer();
  }

  #extend(now: number): void {
    const silentMs = now - (this.clock.silentSince ?? now);
    if (silentMs >= this.command.times.acquireTimeoutMs) {
      const cause = toLockError(undefined, Math.round(silentMs));
      this.runtime.storeIsAway(this.command, performance.now() - silentMs, cause);
    }
    this.clock.extendSent(now, this.command.times);
    const { aheadMs } = this.clock;
    // The timer is set before the send, because a store may answer at once.
    this.#setTimer();
    write(this.runtime.store, "extend", {
      command: this.command,
      deadlineMs: undefined,
      answer: (reply) => this.#extended(reply, now, aheadMs),
    });
  }

  #extended(reply: OwnedReply, sentAt: number, aheadMs: number): void {
    const { kind } = reply;
    if (this.runtime.outage !== undefined && !isNoAnswer(reply)) {
      this.runtime.storeAnswers(this.command);
    }
    // After `release` or a loss the answer is ignored: we may have deleted the key ourselves.
    if (!this.#isWatched) return;
    if (kind === "freed") this.#end("freed");
    if (kind === "gone" || kind === "foreign") this.#end("overtaken");
    // An answer other than `done` renews nothing. After a failure, the next try's timer is set.
    if (kind !== "done") return;
    // Rule 7: our owner id in the key proves that there was no other holder in between, even after
    // the lease has expired; but not if a late request of our acquire may have taken the key again.
    if (this.#mayBeRetaken && !this.clock.isValid) {
      this.#end("expired");
      return;
    }
    this.clock.renewed(sentAt, this.command.times);
    this.#aheadMs = aheadMs;
    this.#setTimer();
  }

  /** Rule 17: a key gone after `complete` was released by it, so the lease is not lost. */
  #end(reason: LostReason): void {
    if (this.#isReleased) this.#unwatch();
    else this.lose(reason);
  }
}
