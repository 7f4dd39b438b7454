import { AsyncResource } from "node:async_hooks";
import { LockLostError, type LostReason } from "../errors.ts";
import { Timer, type TimerWheel } from "../timer-wheel.ts";
import {
  type CallerCommand,
  type LostMessage,
  lostChannel,
  publish,
  type ReleaseMessage,
  releaseChannel,
} from "./diagnostics.ts";
import type { ReleaseOutcome } from "./release.ts";
import type { Retirements } from "./releases.ts";
import type {
  AcquireReply,
  LockCommand,
  LockRequest,
  LockStore,
  LockTimes,
  OwnedReply,
} from "./store.ts";
import { Validity } from "./validity.ts";

/** A lock that is held by us until a time. */
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
  /** How long the lease is certainly valid unless it is extended further, in milliseconds; 0 once it is lost or released. */
  remainingMs(): number;
  /**
   * Gives the lock back. Never rejects and need not be awaited: it settles within about
   * `acquireTimeoutMs`, and goes on in the background if Redis is silent. A second call gives the
   * promise of the first.
   */
  release(): Promise<ReleaseOutcome>;
}

/** What the leases of one lock share. */
export interface LockRuntime {
  readonly store: LockStore;
  readonly times: LockTimes;
  /** Of attempts and retirements. */
  readonly timers: TimerWheel;
  readonly retirements: Retirements;
  /** Of every lease that is neither released nor lost. */
  readonly watchdogs: TimerWheel<HeldLease>;
  /** Called when a lease was released or lost. */
  left(): void;
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

/** A lease, its watchdog and its release. */
export class HeldLease extends Timer implements Lease {
  readonly #keeper: LockRuntime;
  readonly #command: CallerCommand;
  readonly #life: Validity;
  readonly #inFlight: readonly LockRequest<AcquireReply>[];
  /** A copy of our own acquire may take the key again after somebody else has had it. */
  readonly #mayBeRetaken: boolean;
  #lost: LockLostError | undefined;
  #released: Promise<ReleaseOutcome> | undefined;
  // Made on demand: most handlers never look at the signal.
  #aborter: AbortController | undefined;
  /** Of whoever asked for the signal: its listeners are to run in their own context. */
  #listener: AsyncResource | undefined;

  /**
   * @param startedAt monotonic time from before the first send of the acquire.
   * @param inFlight copies of the acquire that may still take effect.
   */
  constructor(
    keeper: LockRuntime,
    command: CallerCommand,
    startedAt: number,
    inFlight: readonly LockRequest<AcquireReply>[],
  ) {
    super();
    this.#keeper = keeper;
    this.#command = command;
    this.#life = new Validity(keeper.times, startedAt);
    this.#inFlight = inFlight;
    this.#mayBeRetaken = inFlight.length > 0;
    this.#schedule();
  }

  // Getters of the prototype: a request's state that is serialised does not show the owner id.
  get key(): string {
    return this.#command.key;
  }

  get ownerId(): string {
    return this.#command.ownerId;
  }

  get signal(): AbortSignal {
    if (this.#aborter === undefined) {
      this.#aborter = new AbortController();
      this.#listener = new AsyncResource("submit-lock");
      if (this.#lost !== undefined) this.#aborter.abort(this.#lost);
    }
    return this.#aborter.signal;
  }

  remainingMs(): number {
    if (this.#lost !== undefined || this.#released !== undefined) return 0;
    return Math.max(0, this.#life.endsAt - performance.now());
  }

  release(): Promise<ReleaseOutcome> {
    this.#released ??= this.#release();
    return this.#released;
  }

  #release(): Promise<ReleaseOutcome> {
    const releasedAt = performance.now();
    const validUntil = this.#lost === undefined ? this.#life.validUntil : 0;
    let settle!: (outcome: ReleaseOutcome) => void;
    // Known before anything else happens: a store may answer at once.
    this.#released = new Promise((resolve) => {
      settle = resolve;
    });
    if (this.#lost === undefined) this.#leave();
    this.#keeper.retirements.begin(this.#command, this.#inFlight, validUntil, (outcome, cause) => {
      this.#publishRelease(outcome, releasedAt, cause);
      settle(outcome);
    });
    return this.#released;
  }

  #publishRelease(outcome: ReleaseOutcome, releasedAt: number, cause: Error | undefined): void {
    if (!releaseChannel.hasSubscribers) return;
    const message: ReleaseMessage = {
      key: this.key,
      outcome,
      durationMs: performance.now() - releasedAt,
      heldMs: releasedAt - this.#life.startedAt,
      cause,
    };
    publish(releaseChannel, this.#command, message);
  }

  /** The lease is over for its holder, although it was not released. */
  lose(reason: LostReason): void {
    if (this.#lost !== undefined || this.#released !== undefined) return;
    this.#lost = new LockLostError(`the lease on ${this.key} was lost: ${why[reason]}`, reason);
    this.#leave();
    if (lostChannel.hasSubscribers) {
      const durationMs = performance.now() - this.#life.startedAt;
      const message: LostMessage = { key: this.key, outcome: reason, durationMs };
      publish(lostChannel, this.#command, message);
    }
    this.#listener?.runInAsyncScope(() => this.#aborter?.abort(this.#lost));
  }

  /** A connection came up: whatever it missed, the lease is confirmed and lengthened now. */
  extendNow(): void {
    // One before it in the list may have ended this one, from a listener of its signal.
    if (this.#lost !== undefined || this.#released !== undefined) return;
    if (this.#life.mayBeExtended) this.#extend(performance.now());
  }

  #leave(): void {
    this.#keeper.watchdogs.clear(this);
    this.#keeper.left();
  }

  #schedule(): void {
    this.#keeper.watchdogs.set(this, this.#life.dueAt);
  }

  override onDue(): void {
    const now = performance.now();
    if (now >= this.#life.tellAt) {
      this.lose(this.#life.mayBeExtended ? "expired" : "max-hold");
      return;
    }
    if (this.#life.mayBeExtended && now >= this.#life.extendAt) this.#extend(now);
    else this.#schedule();
  }

  #extend(now: number): void {
    this.#life.extendSent(now);
    // Before the send: a store may answer at once.
    this.#schedule();
    this.#keeper.store.extend(new ExtendRequest(this, this.#command, now));
  }

  extended(reply: OwnedReply, sentAt: number): void {
    // Once the release has begun, "gone" is its own doing.
    if (this.#lost !== undefined || this.#released !== undefined) return;
    switch (reply.kind) {
      case "done":
        // Otherwise a key that is ours after the lease has run out has been ours all the time.
        if (this.#mayBeRetaken && performance.now() >= this.#life.validUntil) {
          this.lose("expired");
          return;
        }
        this.#life.extendAnswered(sentAt);
        this.#schedule();
        return;
      case "gone":
      case "foreign":
        this.lose("overtaken");
        return;
      case "unknown":
      case "unsent":
      case "rejected":
        // The timer is armed for the next try.
        return;
    }
  }
}

const why: Record<LostReason, string> = {
  expired: "it could not be extended in time",
  overtaken: "the key was gone or held by somebody else",
  "max-hold": "it was held for maxHoldMs",
  closed: "the lock was closed",
};
