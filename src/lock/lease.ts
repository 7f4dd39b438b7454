import {
  type LostMessage,
  lostChannel,
  type ReleaseMessage,
  releaseChannel,
} from "./diagnostics.ts";
import { LockLostError, type LostReason } from "./errors.ts";
import type { ReleaseOutcome, Retirements } from "./retirement.ts";
import type { AcquireReply, Copy, LockCommand, LockStore, LockTimes, OwnedReply } from "./store.ts";

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
export interface LeaseKeeper {
  readonly store: LockStore;
  readonly times: LockTimes;
  readonly retirements: Retirements;
  /** Every lease that is neither released nor lost. */
  readonly live: Set<HeldLease>;
  /** Called when a lease leaves {@link LeaseKeeper.live}. */
  left(): void;
}

/**
 * How long a life of `ttlMs` may be relied on: 1 % for clocks that run at different speeds and 2 ms
 * for the granularity of Redis' expiry, as in the Redlock description.
 */
export function reliableMs(ttlMs: number): number {
  return 0.99 * ttlMs - 2;
}

/** A lease, its watchdog and its release. */
export class HeldLease implements Lease, LockCommand {
  readonly #keeper: LeaseKeeper;
  readonly #key: string;
  readonly #ownerId: string;
  readonly #startedAt: number;
  readonly #openCopies: readonly Copy<AcquireReply>[];
  /** A copy of our own acquire may take the key again after somebody else has had it. */
  readonly #mayBeRetaken: boolean;
  #validUntil: number;
  #extendAt: number;
  #extending: Copy<OwnedReply> | undefined;
  #unanswered: Copy<OwnedReply> | undefined;
  #timer: NodeJS.Timeout | undefined;
  #lost: LockLostError | undefined;
  #released: Promise<ReleaseOutcome> | undefined;
  // Made on demand: most handlers never look at the signal.
  #aborter: AbortController | undefined;

  /**
   * @param startedAt monotonic time from before the first send of the acquire.
   * @param openCopies copies of the acquire that may still take effect.
   */
  constructor(
    keeper: LeaseKeeper,
    command: LockCommand,
    startedAt: number,
    openCopies: readonly Copy<AcquireReply>[],
  ) {
    this.#keeper = keeper;
    this.#key = command.key;
    this.#ownerId = command.ownerId;
    this.#startedAt = startedAt;
    this.#openCopies = openCopies;
    this.#mayBeRetaken = openCopies.length > 0;
    this.#validUntil = startedAt + reliableMs(keeper.times.ttlMs);
    this.#extendAt = startedAt + keeper.times.ttlMs / 3;
    keeper.live.add(this);
    this.#schedule();
  }

  // Getters of the prototype: a request's state that is serialised does not show the owner id.
  get key(): string {
    return this.#key;
  }

  get ownerId(): string {
    return this.#ownerId;
  }

  get times(): LockTimes {
    return this.#keeper.times;
  }

  get signal(): AbortSignal {
    if (this.#aborter === undefined) {
      this.#aborter = new AbortController();
      if (this.#lost !== undefined) this.#aborter.abort(this.#lost);
    }
    return this.#aborter.signal;
  }

  remainingMs(): number {
    if (this.#lost !== undefined || this.#released !== undefined) return 0;
    return Math.max(0, this.#endsAt - performance.now());
  }

  release(): Promise<ReleaseOutcome> {
    this.#released ??= this.#release();
    return this.#released;
  }

  async #release(): Promise<ReleaseOutcome> {
    const releasedAt = performance.now();
    const validUntil = this.#lost === undefined ? this.#validUntil : 0;
    this.#leave();
    const { outcome, cause } = await this.#keeper.retirements.begin(
      this,
      this.#openCopies,
      validUntil,
    );
    if (releaseChannel.hasSubscribers) {
      const message: ReleaseMessage = {
        key: this.#key,
        outcome,
        durationMs: performance.now() - releasedAt,
        heldMs: releasedAt - this.#startedAt,
        cause,
      };
      releaseChannel.publish(message);
    }
    return outcome;
  }

  /** The lease is over for its holder, although it was not released. */
  lose(reason: LostReason): void {
    if (this.#lost !== undefined || this.#released !== undefined) return;
    this.#lost = new LockLostError(`the lease on ${this.#key} was lost: ${why[reason]}`, reason);
    this.#leave();
    if (lostChannel.hasSubscribers) {
      const durationMs = performance.now() - this.#startedAt;
      const message: LostMessage = { key: this.#key, outcome: reason, durationMs };
      lostChannel.publish(message);
    }
    this.#aborter?.abort(this.#lost);
  }

  /** A connection came up: whatever it missed, the lease is confirmed and lengthened now. */
  extendNow(): void {
    if (!this.#mayExtend) return;
    this.#unanswered = this.#extending;
    this.#extend();
    this.#schedule();
  }

  get #holdUntil(): number {
    return this.#startedAt + this.#keeper.times.maxHoldMs;
  }

  get #endsAt(): number {
    return Math.min(this.#validUntil, this.#holdUntil);
  }

  /** When the holder is told: early enough to stop before the lease has ended. */
  get #tellAt(): number {
    return this.#endsAt - Math.min(1_000, this.#keeper.times.ttlMs / 10);
  }

  /** Extending stops with the extend that carries the lease to `maxHoldMs`. */
  get #mayExtend(): boolean {
    return (
      this.#keeper.times.maxHoldMs > this.#keeper.times.ttlMs && this.#validUntil < this.#holdUntil
    );
  }

  #leave(): void {
    clearTimeout(this.#timer);
    this.#keeper.live.delete(this);
    this.#keeper.left();
  }

  #schedule(): void {
    clearTimeout(this.#timer);
    const at = this.#mayExtend ? Math.min(this.#tellAt, this.#extendAt) : this.#tellAt;
    this.#timer = setTimeout(
      // After a blocked event loop the answer to an extend may lie behind this timer.
      () => setImmediate(() => this.#awake()),
      Math.ceil(at - performance.now()),
    );
    // The work keeps the process alive, not its lock.
    this.#timer.unref();
  }

  #awake(): void {
    if (this.#lost !== undefined || this.#released !== undefined) return;
    const now = performance.now();
    if (now >= this.#tellAt) {
      this.lose(this.#mayExtend ? "expired" : "max-hold");
      return;
    }
    if (this.#mayExtend && now >= this.#extendAt) {
      this.#unanswered = this.#extending;
      this.#extend();
    }
    this.#schedule();
  }

  #extend(): void {
    const { times, store } = this.#keeper;
    const sentAt = performance.now();
    // Until an answer moves it on, the next try comes soon: the lease may have only one chance left.
    this.#extendAt = sentAt + Math.max(times.commandTimeoutMs, times.ttlMs / 15);
    const copy = store.extend(this, this.#unanswered);
    this.#extending = copy;
    void copy.reply.then((reply) => this.#extended(copy, reply, sentAt));
  }

  #extended(copy: Copy<OwnedReply>, reply: OwnedReply, sentAt: number): void {
    if (this.#extending === copy) this.#extending = undefined;
    // Once the release has begun, "gone" is its own doing.
    if (this.#lost !== undefined || this.#released !== undefined) return;
    switch (reply.kind) {
      case "done":
        // Otherwise a key that is ours after the lease has run out has been ours all the time.
        if (this.#mayBeRetaken && performance.now() >= this.#validUntil) {
          this.lose("expired");
          return;
        }
        // Counted from the send of this very extend, and never back: an older one may answer later.
        this.#validUntil = Math.max(
          this.#validUntil,
          sentAt + reliableMs(this.#keeper.times.ttlMs),
        );
        this.#extendAt = Math.max(this.#extendAt, sentAt + this.#keeper.times.ttlMs / 3);
        this.#unanswered = undefined;
        this.#schedule();
        return;
      case "gone":
      case "foreign":
        this.lose("overtaken");
        return;
      case "unknown":
        this.#unanswered = copy;
        return;
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
