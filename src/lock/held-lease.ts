import type { LockLostError, LostReason } from "../errors.ts";
import { Timer, type TimerWheel } from "../timer-wheel.ts";
import type { Acquisition } from "./acquisition.ts";
import type { AnswerToStore } from "./answer.ts";
import { type CompleteRuntime, Completing, complete, type OnCompleted } from "./complete.ts";
import { planComplete } from "./complete-plan.ts";
import { type CallerCommand, lostChannel, publish } from "./diagnostics.ts";
import { ExtendRequest } from "./extend.ts";
import type { InFlight } from "./in-flight.ts";
import { LeaseSignal } from "./lease-signal.ts";
import { lostError } from "./lost-error.ts";
import { checkRecords } from "./records.ts";
import { type OnReleased, release } from "./release.ts";
import { Retirement } from "./retirement.ts";
import type { OwnedReply } from "./store.ts";
import { Validity } from "./validity.ts";
import type { WaitGroup } from "./wait-group.ts";

/** What the leases of one lock share. */
export interface LeaseRuntime extends CompleteRuntime {
  /**
   * Of every lease that is neither released nor lost, whose complete is unanswered, or that is lost
   * and may have the key until its time is over.
   */
  readonly watchdogs: TimerWheel<HeldLease>;
  /** The attempts under way and the leases that are neither released, completed nor lost. */
  readonly active: WaitGroup;
  /** `close` has waited long enough: a lease that comes in now is given back at once. */
  isDrained: boolean;
}

/**
 * A lease and its watchdog. Held until it is released, completed or lost:
 *
 * ```
 * held ── release() ───────────────────────────────────▶ released
 *   │ ─── complete() ──────────────────────────────────▶ completing ── answered ──▶ completed
 *   │ ─── an extend finds its own tombstone ───────────▶ lost: freed
 *   │ ─── an extend finds no key or anything else ─────▶ lost: overtaken
 *   │ ─── not extended in time ────────────────────────▶ lost: expired
 *   │ ─── held for maxHoldMs ──────────────────────────▶ lost: max-hold
 *   └──── close() has waited long enough ──────────────▶ lost: closed
 * ```
 */
export class HeldLease extends Timer {
  readonly command: CallerCommand;
  readonly fencingToken: number | undefined;
  readonly #runtime: LeaseRuntime;
  readonly #validity: Validity;
  readonly #inFlight: InFlight;
  /** A late request of our own acquire may take the key again after somebody else has had it. */
  readonly #mayBeRetaken: boolean;
  #lost: LockLostError | undefined;
  #isReleased = false;
  /** When the watchdog stops at the latest; ∞ until complete was called. */
  #extendUntil: number = Number.POSITIVE_INFINITY;
  /** Whether the watchdog works. */
  #isWatched = true;
  readonly #storeOffsetMs: number;
  #signal: LeaseSignal | undefined;
  /** Of a lost lease. */
  #retirement: Retirement | undefined;

  constructor(runtime: LeaseRuntime, command: CallerCommand, acquisition: Acquisition) {
    super();
    const { startedAt, inFlight, fencingToken, storeOffsetMs } = acquisition;
    this.#runtime = runtime;
    this.command = command;
    this.fencingToken = fencingToken;
    this.#validity = new Validity(runtime.times, startedAt);
    this.#inFlight = inFlight;
    this.#storeOffsetMs = storeOffsetMs;
    this.#mayBeRetaken = !inFlight.isEmpty;
    this.#setTimer();
  }

  /** Monotonic time from before the first send of the acquire. */
  get startedAt(): number {
    return this.#validity.startedAt;
  }

  get signal(): AbortSignal {
    this.#signal ??= new LeaseSignal(this.#lost);
    return this.#signal.signal;
  }

  remainingMs(): number {
    if (!this.isHeld) return 0;
    return Math.max(0, this.#validity.endsAt - performance.now());
  }

  /** Neither released, completed nor lost. */
  get isHeld(): boolean {
    return !this.#isReleased && this.#lost === undefined;
  }

  /** A time that the store's clock has passed, as the lease's own acquire taught it. Never a wall clock. */
  #storeTimeMs(): number {
    return Math.ceil(performance.now() + this.#storeOffsetMs);
  }

  /** @throws InvalidOptionError where the store has no cooldown. */
  checkCooldown(): void {
    checkRecords(this.#runtime.store, "cooldownMs");
  }

  /**
   * Gives the key back. Call once, and not after `complete`.
   *
   * @param cooldownMs for how long it keeps everybody out, if it is still ours.
   */
  release(onReleased: OnReleased, cooldownMs = 0): void {
    this.#unwatch();
    this.#isReleased = true;
    if (this.#retirement !== undefined) {
      this.#retirement.begin(onReleased);
      return;
    }
    this.#runtime.active.done();
    // Rule 19: only by who still holds, and until a time that is stamped once.
    const cooldownUntilMs = cooldownMs === 0 ? 0 : this.#storeTimeMs() + cooldownMs;
    const { validUntil } = this.#validity;
    // Rule 5: this also retires what is in flight.
    release(this.#runtime, this.command, this.#inFlight, validUntil, onReleased, cooldownUntilMs);
  }

  /**
   * Lets the record of the answer take the place of the key. Call once, and not after `release`.
   *
   * @throws InvalidOptionError without a submission.
   */
  complete(answer: AnswerToStore, cooldownMs: number, onCompleted: OnCompleted): void {
    const isLost = this.#lost !== undefined;
    const plan = planComplete(
      this.command,
      answer,
      this.#storeTimeMs(),
      isLost ? 0 : cooldownMs,
      this.#runtime.pendingRecordLength,
      performance.now() - this.startedAt,
    );
    // Rule 15: it does not need the lock; a lease that was lost is recorded, too.
    if (isLost) this.#unwatch();
    else this.#runtime.active.done();
    this.#isReleased = true;
    // Rule 17: extended on until it is answered, for a bounded time.
    this.#extendUntil = performance.now() + Completing.patienceMs(this.command.times);
    complete(this.#runtime, this.command, this.#inFlight, plan, (outcome, cause) => {
      this.#unwatch();
      onCompleted(outcome, cause);
    });
  }

  /** The lease is over for its holder, although it was not released. */
  lose(reason: LostReason): void {
    if (!this.isHeld) return;
    const { command, fencingToken } = this;
    const { key, keyPrefix } = command;
    const lost = lostError(key, reason);
    this.#lost = lost;
    this.#unwatch();
    this.#runtime.active.done();
    if (lostChannel.hasSubscribers) {
      const durationMs = performance.now() - this.#validity.startedAt;
      const message = { key, keyPrefix, outcome: reason, fencingToken, durationMs };
      publish(lostChannel, command, message);
    }
    this.#retirement = new Retirement(this.#runtime, command, this.#inFlight);
    // Rule 19: by the lease itself. Where the key may still be its own, the holder has the rest of its
    // time to stop; of a lock that is closed, the key runs out by itself.
    if (reason === "freed" || reason === "overtaken") this.#retirement.begin();
    else if (reason !== "closed") this.#runtime.watchdogs.set(this, this.#validity.endsAt);
    // Its listeners may release or complete.
    this.#signal?.abort(lost);
  }

  /** A connection came up: whatever it missed, the lease is extended now. */
  extendNow(): void {
    // A lease before it in the list may have ended this one, from a listener of its signal.
    if (!this.#isWatched) return;
    if (this.#validity.mayBeExtended) this.#extend(performance.now());
  }

  #unwatch(): void {
    this.#isWatched = false;
    this.#runtime.watchdogs.clear(this);
  }

  /** Rule 17: once a complete was sent, it may be what the extend has met, so nothing is lost. */
  #end(reason: LostReason): void {
    if (this.#isReleased) this.#unwatch();
    else this.lose(reason);
  }

  #setTimer(): void {
    this.#runtime.watchdogs.set(this, this.#validity.dueAt);
  }

  override onDue(): void {
    if (this.#retirement !== undefined) {
      this.#retirement.begin();
      return;
    }
    const now = performance.now();
    const isAtItsEnd = now >= this.#validity.notifyAt;
    if (this.#isReleased && (isAtItsEnd || now >= this.#extendUntil)) {
      this.#unwatch();
      return;
    }
    if (isAtItsEnd) {
      this.lose(this.#validity.mayBeExtended ? "expired" : "max-hold");
      return;
    }
    if (this.#validity.mayBeExtended && now >= this.#validity.extendAt) this.#extend(now);
    else this.#setTimer();
  }

  #extend(now: number): void {
    this.#validity.extendSent(now);
    // Before the send: a store may answer at once.
    this.#setTimer();
    this.#runtime.store.extend(new ExtendRequest(this, now));
  }

  extended(reply: OwnedReply, sentAt: number): void {
    // Once the release has begun, "gone" is its own doing.
    if (!this.#isWatched) return;
    switch (reply.kind) {
      case "done":
        // Rule 7: with no request in flight, our owner id in the key proves that nobody held it in
        // between, even after the lease has expired. With one, our own late acquire may have taken
        // the key again, so an expired lease is lost.
        if (this.#mayBeRetaken && performance.now() >= this.#validity.validUntil) {
          this.#end("expired");
          return;
        }
        this.#validity.extendAnswered(sentAt);
        this.#setTimer();
        return;
      case "freed":
        this.#end("freed");
        return;
      case "gone":
      case "foreign":
        this.#end("overtaken");
        return;
      // Without an answer the timer is set for the next try.
    }
  }
}
