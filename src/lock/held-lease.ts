import { AsyncResource } from "node:async_hooks";
import { LockLostError, type LostReason } from "../errors.ts";
import { Timer } from "../timer-wheel.ts";
import type { Acquired } from "./acquire.ts";
import { lostChannel, publish } from "./channels.ts";
import { Completing, complete, type OnCompleted, planComplete } from "./complete.ts";
import type { AnswerToStore } from "./record.ts";
import { type OnReleased, release } from "./release.ts";
import { type CallerCommand, type InFlight, type LockRuntime, write } from "./runtime.ts";
import type { LockCommand, LockRequest, LockTimes, OwnedReply } from "./store.ts";
import { checkRecords } from "./submission.ts";

/**
 * For how long a key with `ttlMs` to live may be relied on, in milliseconds: less 1 % for clocks
 * that run at different speeds and 2 ms for the granularity of Redis' expiry, as Redlock has it
 * (https://redis.io/docs/latest/develop/use/patterns/distributed-locks/).
 */
function reliableMs(ttlMs: number): number {
  return 0.99 * ttlMs - 2;
}

/**
 * Rule 7: the times of one lease, all by the monotonic clock: until when it is valid, when it has
 * to be extended, and when its holder is notified.
 */
class Validity {
  readonly #times: LockTimes;
  readonly startedAt: number;
  /** No other owner can have the key before. */
  validUntil: number;
  /** When the next extend is due. */
  extendAt: number;

  /** @param startedAt from before the first send of the acquire. */
  constructor(times: LockTimes, startedAt: number) {
    this.#times = times;
    this.startedAt = startedAt;
    this.validUntil = startedAt + reliableMs(times.ttlMs);
    this.extendAt = startedAt + times.ttlMs / 3;
  }

  get endsAt(): number {
    return Math.min(this.validUntil, this.#heldUntil);
  }

  /** When the holder is notified of the loss: early enough to stop before the end. */
  get notifyAt(): number {
    return this.endsAt - Math.min(1_000, this.#times.ttlMs / 10);
  }

  /** False from the extend on that carries the lease to `maxHoldMs`. */
  get mayBeExtended(): boolean {
    return this.#times.maxHoldMs > this.#times.ttlMs && this.validUntil < this.#heldUntil;
  }

  /** When the watchdog has something to do next. */
  get dueAt(): number {
    return this.mayBeExtended ? Math.min(this.notifyAt, this.extendAt) : this.notifyAt;
  }

  /** Until an answer says otherwise the next extend comes soon: there may be time for only one. */
  extendSent(sentAt: number): void {
    const { commandTimeoutMs, ttlMs } = this.#times;
    this.extendAt = sentAt + Math.max(commandTimeoutMs, ttlMs / 15);
  }

  /** Counts from the send of that very extend, and never goes back: answers may overtake each other. */
  extendAnswered(sentAt: number): void {
    const { ttlMs } = this.#times;
    this.validUntil = Math.max(this.validUntil, sentAt + reliableMs(ttlMs));
    this.extendAt = Math.max(this.extendAt, sentAt + ttlMs / 3);
  }

  get #heldUntil(): number {
    return this.startedAt + this.#times.maxHoldMs;
  }
}

const explanations: Record<LostReason, string> = {
  expired: "it could not be extended in time",
  overtaken: "the key was gone or held by another owner",
  freed: "a person has taken the lock away",
  "max-hold": "it was held for maxHoldMs",
  closed: "the lock was closed",
};

/** One write of an extend. */
class ExtendRequest implements LockRequest<OwnedReply> {
  readonly #lease: HeldLease;
  readonly #sentAt: number;
  deadlineMs: number | undefined;

  constructor(lease: HeldLease, sentAt: number) {
    this.#lease = lease;
    this.#sentAt = sentAt;
  }

  get command(): LockCommand {
    return this.#lease.command;
  }

  answer(reply: OwnedReply): void {
    this.#lease.extended(reply, this.#sentAt);
  }
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
  readonly #runtime: LockRuntime;
  readonly #validity: Validity;
  readonly #inFlight: InFlight;
  /** A late request of our own acquire may take the key again after another owner has had it. */
  readonly #mayBeRetaken: boolean;
  #lost: LockLostError | undefined;
  #isReleased = false;
  /** When the watchdog stops at the latest; ∞ until complete was called. */
  #extendUntil: number = Number.POSITIVE_INFINITY;
  /** Whether the watchdog works. */
  #isWatched = true;
  readonly #storeOffsetMs: number;
  /** Made on first use: most handlers never look at the signal. */
  #aborter: AbortController | undefined;
  /** The context of the code that first asked for the signal: its listeners must run there. */
  #signalContext: AsyncResource | undefined;
  /** Rule 19: the one retire of a lost lease, begun by the lease itself or by `release`. */
  #retired: Promise<Parameters<OnReleased>> | undefined;

  constructor(
    runtime: LockRuntime,
    command: CallerCommand,
    { startedAt, inFlight, fencingToken, storeOffsetMs }: Acquired,
  ) {
    super();
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
    if (this.#aborter === undefined) {
      this.#aborter = new AbortController();
      this.#signalContext = new AsyncResource("submit-lock");
      if (this.#lost !== undefined) this.#aborter.abort(this.#lost);
    }
    return this.#aborter.signal;
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
   * @param cooldownMs for how long the key refuses every acquire, if it is still ours.
   */
  release(onReleased: OnReleased, cooldownMs = 0): void {
    this.#unwatch();
    this.#isReleased = true;
    if (this.#lost !== undefined) {
      this.#retire(onReleased);
      return;
    }
    this.#runtime.active.done();
    // Rule 19: only by the holder, and until a time that is stamped once.
    const cooldownUntilMs = cooldownMs === 0 ? 0 : this.#storeTimeMs() + cooldownMs;
    const { validUntil } = this.#validity;
    // Rule 5: this also retires what is in flight.
    release(this.#runtime, this.command, this.#inFlight, validUntil, onReleased, cooldownUntilMs);
  }

  /**
   * Replaces the key by the record of the answer. Call once, and not after `release`.
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
    const lost = new LockLostError(`the lease on ${key} was lost: ${explanations[reason]}`, reason);
    this.#lost = lost;
    this.#unwatch();
    this.#runtime.active.done();
    if (lostChannel.hasSubscribers) {
      const durationMs = performance.now() - this.#validity.startedAt;
      const message = { key, keyPrefix, outcome: reason, fencingToken, durationMs };
      publish(lostChannel, command, message);
    }
    // Rule 19: retired by the lease itself. Where the key may still be its own, the holder has the rest
    // of its time to stop; the key of a closed lock runs out by itself.
    if (reason === "freed" || reason === "overtaken") this.#retire();
    else if (reason !== "closed") this.#runtime.watchdogs.set(this, this.#validity.endsAt);
    // Its listeners may release or complete.
    this.#signalContext?.runInAsyncScope(() => this.#aborter?.abort(lost));
  }

  #retire(onReleased?: OnReleased): void {
    // The key was deleted by the earlier retire: a release that follows finds the lease gone.
    const isGone = this.#retired !== undefined;
    this.#retired ??= new Promise((resolve) =>
      release(this.#runtime, this.command, this.#inFlight, 0, (...result) => resolve(result)),
    );
    if (onReleased === undefined) return;
    void this.#retired.then(([outcome, cause]) =>
      onReleased(isGone && outcome === "released" ? "gone" : outcome, cause),
    );
  }

  /** A connection came up: the lease is extended now, whatever the connection missed. */
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
    if (this.#lost !== undefined) {
      this.#retire();
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
    write(this.#runtime.store, "extend", new ExtendRequest(this, now));
  }

  extended(reply: OwnedReply, sentAt: number): void {
    // Once the release has begun, "gone" is its own doing.
    if (!this.#isWatched) return;
    switch (reply.kind) {
      case "done":
        // Rule 7: with no request in flight, our owner id in the key proves that no other held it in
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
