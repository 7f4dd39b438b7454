import { AsyncResource } from "node:async_hooks";
import { LockLostError, type LostReason } from "../errors.ts";
import { Timer, type TimerWheel } from "../timer-wheel.ts";
import { type CallerCommand, type LostMessage, lostChannel, publish } from "./diagnostics.ts";
import type { InFlight } from "./in-flight.ts";
import { type OnReleased, type ReleaseRuntime, release } from "./release.ts";
import type { LockCommand, LockRequest, OwnedReply } from "./store.ts";
import { Validity } from "./validity.ts";
import type { WaitGroup } from "./wait-group.ts";

/** What the leases of one lock share. */
export interface LeaseRuntime extends ReleaseRuntime {
  /** Of every lease that is neither released nor lost. */
  readonly watchdogs: TimerWheel<HeldLease>;
  /** The attempts under way and the leases that are neither released nor lost. */
  readonly active: WaitGroup;
}

/** One write of an extend. */
class ExtendRequest implements LockRequest<OwnedReply> {
  readonly command: LockCommand;
  readonly #lease: HeldLease;
  readonly #sentAt: number;
  deadlineMs: number | undefined;

  constructor(lease: HeldLease, command: LockCommand, sentAt: number) {
    this.#lease = lease;
    this.command = command;
    this.#sentAt = sentAt;
  }

  answer(reply: OwnedReply): void {
    this.#lease.extended(reply, this.#sentAt);
  }
}

/**
 * A lease and its watchdog. Held until it is released or lost, and each is final:
 *
 * ```
 * held ── release() ───────────────────────────────────▶ released
 *   │ ─── an extend finds no key or another owner id ──▶ lost: overtaken
 *   │ ─── not extended in time ────────────────────────▶ lost: expired
 *   │ ─── held for maxHoldMs ──────────────────────────▶ lost: max-hold
 *   └──── close() has waited long enough ──────────────▶ lost: closed
 * ```
 */
export class HeldLease extends Timer {
  readonly command: CallerCommand;
  readonly #runtime: LeaseRuntime;
  readonly #validity: Validity;
  readonly #inFlight: InFlight;
  /** A late request of our own acquire may take the key again after somebody else has had it. */
  readonly #mayBeRetaken: boolean;
  #lost: LockLostError | undefined;
  #isReleased = false;
  // Made on demand: most handlers never look at the signal.
  #aborter: AbortController | undefined;
  /** Of whoever asked for the signal: its listeners are to run in their own context. */
  #signalContext: AsyncResource | undefined;

  /**
   * @param startedAt monotonic time from before the first send of the acquire.
   * @param inFlight requests of the acquire that may still take effect.
   */
  constructor(
    runtime: LeaseRuntime,
    command: CallerCommand,
    startedAt: number,
    inFlight: InFlight,
  ) {
    super();
    this.#runtime = runtime;
    this.command = command;
    this.#validity = new Validity(runtime.times, startedAt);
    this.#inFlight = inFlight;
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
    if (this.#isOver) return 0;
    return Math.max(0, this.#validity.endsAt - performance.now());
  }

  get #isOver(): boolean {
    return this.#isReleased || this.#lost !== undefined;
  }

  /** Gives the key back. Call once. */
  release(onReleased: OnReleased): void {
    const validUntil = this.#lost === undefined ? this.#validity.validUntil : 0;
    if (this.#lost === undefined) this.#end();
    this.#isReleased = true;
    // Rule 5: this also retires what is in flight.
    release(this.#runtime, this.command, this.#inFlight, validUntil, onReleased);
  }

  /** The lease is over for its holder, although it was not released. */
  lose(reason: LostReason): void {
    if (this.#isOver) return;
    const { key } = this.command;
    this.#lost = new LockLostError(`the lease on ${key} was lost: ${explanations[reason]}`, reason);
    this.#end();
    if (lostChannel.hasSubscribers) {
      const durationMs = performance.now() - this.#validity.startedAt;
      const message: LostMessage = { key, outcome: reason, durationMs };
      publish(lostChannel, this.command, message);
    }
    this.#signalContext?.runInAsyncScope(() => this.#aborter?.abort(this.#lost));
  }

  /** A connection came up: whatever it missed, the lease is extended now. */
  extendNow(): void {
    // A lease before it in the list may have ended this one, from a listener of its signal.
    if (this.#isOver) return;
    if (this.#validity.mayBeExtended) this.#extend(performance.now());
  }

  #end(): void {
    this.#runtime.watchdogs.clear(this);
    this.#runtime.active.done();
  }

  #setTimer(): void {
    this.#runtime.watchdogs.set(this, this.#validity.dueAt);
  }

  override onDue(): void {
    const now = performance.now();
    if (now >= this.#validity.notifyAt) {
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
    this.#runtime.store.extend(new ExtendRequest(this, this.command, now));
  }

  extended(reply: OwnedReply, sentAt: number): void {
    // Once the release has begun, "gone" is its own doing.
    if (this.#isOver) return;
    switch (reply.kind) {
      case "done":
        // Rule 7: with no request in flight, our owner id in the key proves that nobody held it in
        // between, even after the lease has expired. With one, our own late acquire may have taken
        // the key again, so an expired lease is lost.
        if (this.#mayBeRetaken && performance.now() >= this.#validity.validUntil) {
          this.lose("expired");
          return;
        }
        this.#validity.extendAnswered(sentAt);
        this.#setTimer();
        return;
      case "gone":
      case "foreign":
        this.lose("overtaken");
        return;
      case "unknown":
      case "unsent":
      case "rejected":
        // The timer is set for the next try.
        return;
    }
  }
}

const explanations: Record<LostReason, string> = {
  expired: "it could not be extended in time",
  overtaken: "the key was gone or held by somebody else",
  "max-hold": "it was held for maxHoldMs",
  closed: "the lock was closed",
};
