import type { LockTimes } from "./store.ts";

/**
 * How long a life of `ttlMs` may be relied on: 1 % for clocks that run at different speeds and 2 ms
 * for the granularity of Redis' expiry, as in the Redlock description.
 */
export function reliableMs(ttlMs: number): number {
  return 0.99 * ttlMs - 2;
}

/** The times of one lease, all by the monotonic clock: until when it is valid, and what is due when. */
export class Validity {
  readonly #times: LockTimes;
  readonly startedAt: number;
  /** Nobody else can have the key before. */
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
    return Math.min(this.validUntil, this.#holdUntil);
  }

  /** When the holder is told: early enough to stop before the lease has ended. */
  get tellAt(): number {
    return this.endsAt - Math.min(1_000, this.#times.ttlMs / 10);
  }

  /** Extending stops with the extend that carries the lease to `maxHoldMs`. */
  get mayBeExtended(): boolean {
    return this.#times.maxHoldMs > this.#times.ttlMs && this.validUntil < this.#holdUntil;
  }

  /** When the lease has to be looked after next. */
  get dueAt(): number {
    return this.mayBeExtended ? Math.min(this.tellAt, this.extendAt) : this.tellAt;
  }

  /** Until an answer moves it on, the next extend comes soon: there may be only one chance left. */
  extendSent(sentAt: number): void {
    const { commandTimeoutMs, ttlMs } = this.#times;
    this.extendAt = sentAt + Math.max(commandTimeoutMs, ttlMs / 15);
  }

  /** Counted from the send of that very extend, and never back: an older one may be answered later. */
  extendAnswered(sentAt: number): void {
    const { ttlMs } = this.#times;
    this.validUntil = Math.max(this.validUntil, sentAt + reliableMs(ttlMs));
    this.extendAt = Math.max(this.extendAt, sentAt + ttlMs / 3);
  }

  get #holdUntil(): number {
    return this.startedAt + this.#times.maxHoldMs;
  }
}
