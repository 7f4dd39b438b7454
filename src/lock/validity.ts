import { performance, wallClock } from "../time.ts";
import type { LockTimes } from "./store.ts";

/**
 * Rule 7: the time of one attempt and its lease, in ms: the larger of what the monotonic and the wall
 * clock say since its start. While a machine sleeps, only its wall clock goes on, as Redis' does.
 */
export class LeaseClock {
  readonly startedAt: number = performance.now();
  /** One more, because `wallClock.now()` is rounded down: without a sleep the monotonic clock counts. */
  readonly #wallOffset: number = wallClock.now() + 1 - this.startedAt;

  now(): number {
    return Math.max(performance.now(), wallClock.now() - this.#wallOffset);
  }
}

/** Rule 7: the times of one lease, all by its {@link LeaseClock}. */
export class Validity {
  readonly startedAt: number;
  readonly #times: LockTimes;
  /** Before this time the key cannot have run out. */
  validUntil = 0;
  /** When the first of the extends without an answer was sent. */
  silentSince: number | undefined;
  /** When the next extend is due; ∞ if none is needed for the rest of `maxHoldMs`. */
  extendAt = 0;
  endsAt = 0;
  /** When the holder is notified that the lease runs out: early enough to stop before `endsAt`. */
  notifyAt = 0;

  constructor(times: LockTimes, startedAt: number) {
    this.#times = times;
    this.startedAt = startedAt;
    this.renewed(startedAt);
  }

  /** Answers may overtake each other. @param sentAt of the request that has renewed the key. */
  renewed(sentAt: number): void {
    const { maxHoldMs, ttlMs } = this.#times;
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
  extendSent(sentAt: number): void {
    const { commandTimeoutMs, ttlMs } = this.#times;
    this.silentSince ??= sentAt;
    this.extendAt = sentAt + Math.max(commandTimeoutMs, ttlMs / 15);
  }
}
