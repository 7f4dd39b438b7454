import { AsyncResource } from "node:async_hooks";
import { LockLostError, type LostReason } from "../errors.ts";
import { Timer } from "../timer-wheel.ts";
import { lostChannel, publish } from "./channels.ts";
import { Completing, type OnCompleted, patienceMs } from "./complete.ts";
import type { AnswerToStore } from "./record.ts";
import { type OnReleased, Releasing } from "./release.ts";
import { type CallerCommand, type InFlight, type LockRuntime, write } from "./runtime.ts";
import type { LockTimes, OwnedReply } from "./store.ts";

/**
 * Rule 7: the times of one lease, all by the monotonic clock: until when it is valid, when it has
 * to be extended, and when its holder is notified.
 */
class Validity {
  readonly startedAt: number;
  readonly #times: LockTimes;
  /** No other owner can have the key before. */
  validUntil = 0;
  /** When the next extend is due; ∞ from the one on that carries the lease to `maxHoldMs`. */
  extendAt = 0;

  /** @param startedAt from before the first send of the acquire. */
  constructor(times: LockTimes, startedAt: number) {
    this.#times = times;
    this.startedAt = startedAt;
    this.renewed(startedAt);
  }

  /** Counts from the send of that very request, and never goes back: answers may overtake each other. */
  renewed(sentAt: number): void {
    const { maxHoldMs, ttlMs } = this.#times;
    // Less 1 % for clocks that run at different speeds and 2 ms for the granularity of Redis' expiry,
    // as Redlock has it (https://redis.io/docs/latest/develop/use/patterns/distributed-locks/).
    this.validUntil = Math.max(this.validUntil, sentAt + 0.99 * ttlMs - 2);
    const isLast = maxHoldMs <= ttlMs || this.validUntil >= this.startedAt + maxHoldMs;
    this.extendAt = isLast ? Number.POSITIVE_INFINITY : Math.max(this.extendAt, sentAt + ttlMs / 3);
  }

  /** Until an answer says otherwise the next extend comes soon: there may be time for only one. */
  extendSent(sentAt: number): void {
    const { commandTimeoutMs, ttlMs } = this.#times;
    this.extendAt = sentAt + Math.max(commandTimeoutMs, ttlMs / 15);
  }

  get endsAt(): number {
    return Math.min(this.validUntil, this.startedAt + this.#times.maxHoldMs);
  }

  /** When the holder is notified of the loss: early enough to stop before the end. */
  get notifyAt(): number {
    return this.endsAt - Math.min(1_000, this.#times.ttlMs / 10);
  }
}

const explanations: Record<LostReason, string> = {
  expired: "it could not be extended in time",
  overtaken: "the key was gone or held by another owner",
  freed: "a person has taken the lock away",
  "max-hold": "it was held for maxHoldMs",
  closed: "the lock was closed",
};

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
  readonly runtime: LockRuntime;
  readonly command: CallerCommand;
  readonly fencingToken: number | undefined;
  readonly validity: Validity;
  readonly #inFlight: InFlight;
  /** A late request of our own acquire may take the key again after another owner has had it. */
  readonly #mayBeRetaken: boolean;
  readonly #storeOffsetMs: number;
  #lost: LockLostError | undefined;
  #isReleased = false;
  /** When the watchdog stops at the latest; ∞ until complete was called. */
  #extendUntil: number = Number.POSITIVE_INFINITY;
  #isWatched = true;
  /** Made on first use: most handlers never look at the signal. */
  #aborter: AbortController | undefined;
  /** The context of the code that first asked for the signal: its listeners must run there. */
  #signalContext: AsyncResource | undefined;
  /** Rule 19: the one retire of a lost lease, begun by the lease itself or by `release`. */
  #retired: Promise<Parameters<OnReleased>> | undefined;

  /**
   * @param inFlight the requests of its acquire that may still take effect.
   * @param startedAt monotonic time from before the first send: the lease counts from here.
   * @param fencingToken `undefined` in a store that has none.
   * @param storeOffsetMs added to the monotonic clock, it gives a time that the store's clock has passed.
   */
  constructor(
    runtime: LockRuntime,
    command: CallerCommand,
    inFlight: InFlight,
    startedAt: number,
    fencingToken: number | undefined,
    storeOffsetMs: number,
  ) {
    super();
    this.runtime = runtime;
    this.command = command;
    this.#inFlight = inFlight;
    this.#mayBeRetaken = inFlight.first !== undefined;
    this.validity = new Validity(command.times, startedAt);
    this.fencingToken = fencingToken;
    this.#storeOffsetMs = storeOffsetMs;
    this.#setTimer();
  }

  get signal(): AbortSignal {
    if (this.#aborter === undefined) {
      this.#aborter = new AbortController();
      this.#signalContext = new AsyncResource("submit-lock");
      if (this.#lost !== undefined) this.#aborter.abort(this.#lost);
    }
    return this.#aborter.signal;
  }

  remainingMs(): number {
    return this.isHeld ? Math.max(0, this.validity.endsAt - performance.now()) : 0;
  }

  /** Neither released, completed nor lost. */
  get isHeld(): boolean {
    return !this.#isReleased && this.#lost === undefined;
  }

  /** A time that the store's clock has passed, as the lease's own acquire taught it. Never a wall clock. */
  #storeTimeMs(): number {
    return Math.ceil(performance.now() + this.#storeOffsetMs);
  }

  /**
   * Gives the key back. Call once, and not after `complete`.
   *
   * @param cooldownMs for how long the key refuses every acquire, if it is still ours.
   */
  release(onReleased?: OnReleased, cooldownMs = 0): void {
    this.#unwatch();
    this.#isReleased = true;
    if (this.#lost !== undefined) {
      this.#retire(onReleased);
      return;
    }
    this.runtime.active.done();
    // Rule 19: only by the holder, and until a time that is stamped once.
    const cooldownUntil = cooldownMs === 0 ? 0 : this.#storeTimeMs() + cooldownMs;
    const { command, runtime, validity } = this;
    const { validUntil } = validity;
    // Rule 5: this also retires what is in flight.
    new Releasing(runtime, command, this.#inFlight, validUntil, onReleased, cooldownUntil).begin();
  }

  /**
   * Replaces the key by the record of the answer. Call once, and not after `release`.
   *
   * @throws InvalidOptionError without a submission.
   */
  complete(answer: AnswerToStore, cooldownMs: number, onCompleted: OnCompleted): void {
    const now = performance.now();
    const isLost = this.#lost !== undefined;
    const completing = new Completing(
      this.runtime,
      this.command,
      this.#inFlight,
      answer,
      this.#storeTimeMs(),
      isLost ? 0 : cooldownMs,
      now - this.validity.startedAt,
      (outcome, cause) => {
        this.#unwatch();
        onCompleted(outcome, cause);
      },
    );
    // Rule 15: it does not need the lock; a lease that was lost is recorded, too.
    if (isLost) this.#unwatch();
    else this.runtime.active.done();
    this.#isReleased = true;
    // Rule 17: extended on until it is answered, for a bounded time.
    this.#extendUntil = now + patienceMs(this.command.times);
    completing.begin();
  }

  /** The lease is over for its holder, although it was not released. */
  lose(reason: LostReason): void {
    if (!this.isHeld) return;
    const { command, fencingToken } = this;
    const why = explanations[reason];
    const lost = new LockLostError(`the lease on ${command.key} was lost: ${why}`, reason);
    this.#lost = lost;
    this.#unwatch();
    this.runtime.active.done();
    if (lostChannel.hasSubscribers) {
      const durationMs = performance.now() - this.validity.startedAt;
      publish(lostChannel, command, { outcome: reason, fencingToken, durationMs });
    }
    // Rule 19: retired by the lease itself. Where the key may still be its own, the holder has the rest
    // of its time to stop; the key of a closed lock runs out by itself.
    if (reason === "freed" || reason === "overtaken") this.#retire();
    else if (reason !== "closed") this.runtime.watchdogs.set(this, this.validity.endsAt);
    // Its listeners may release or complete.
    this.#signalContext?.runInAsyncScope(() => this.#aborter?.abort(lost));
  }

  #retire(onReleased?: OnReleased): void {
    // The key was deleted by the earlier retire: a release that follows finds the lease gone.
    const isGone = this.#retired !== undefined;
    this.#retired ??= new Promise((resolve) => {
      const onRetired: OnReleased = (...result) => resolve(result);
      new Releasing(this.runtime, this.command, this.#inFlight, 0, onRetired).begin();
    });
    if (onReleased === undefined) return;
    void this.#retired.then(([outcome, cause]) =>
      onReleased(isGone && outcome === "released" ? "gone" : outcome, cause),
    );
  }

  /** A connection came up: the lease is extended now, whatever the connection missed. */
  extendNow(): void {
    // A lease before it in the list may have ended this one, from a listener of its signal.
    if (this.#isWatched && this.validity.extendAt < Number.POSITIVE_INFINITY) {
      this.#extend(performance.now());
    }
  }

  #unwatch(): void {
    this.#isWatched = false;
    this.runtime.watchdogs.clear(this);
  }

  #setTimer(): void {
    const { extendAt, notifyAt } = this.validity;
    this.runtime.watchdogs.set(this, Math.min(extendAt, notifyAt));
  }

  override onDue(): void {
    if (this.#lost !== undefined) {
      this.#retire();
      return;
    }
    const now = performance.now();
    const { extendAt, notifyAt } = this.validity;
    if (this.#isReleased && now >= this.#extendUntil) this.#unwatch();
    else if (now >= notifyAt)
      this.#end(extendAt < Number.POSITIVE_INFINITY ? "expired" : "max-hold");
    else if (now >= extendAt) this.#extend(now);
    else this.#setTimer();
  }

  #extend(now: number): void {
    this.validity.extendSent(now);
    // Before the send: a store may answer at once.
    this.#setTimer();
    write(this.runtime.store, "extend", {
      command: this.command,
      deadlineMs: undefined,
      answer: (reply) => this.#extended(reply, now),
    });
  }

  #extended({ kind }: OwnedReply, sentAt: number): void {
    // Once the release has begun, "gone" is its own doing.
    if (!this.#isWatched) return;
    if (kind === "freed") this.#end("freed");
    if (kind === "gone" || kind === "foreign") this.#end("overtaken");
    // Without an answer the timer is set for the next try.
    if (kind !== "done") return;
    // Rule 7: with no request in flight, our owner id in the key proves that no other held it in
    // between, even after the lease has expired. With one, our own late acquire may have taken
    // the key again, so an expired lease is lost.
    if (this.#mayBeRetaken && performance.now() >= this.validity.validUntil) {
      this.#end("expired");
      return;
    }
    this.validity.renewed(sentAt);
    this.#setTimer();
  }

  /** Rule 17: once a complete was sent, it may be what the extend has met, so nothing is lost. */
  #end(reason: LostReason): void {
    if (this.#isReleased) this.#unwatch();
    else this.lose(reason);
  }
}
