import type { LockTimes } from "./store.ts";

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
 * to be extended, and when its holder is told.
 */
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
    return Math.min(this.validUntil, this.#heldUntil);
  }

  /** When the holder is told that it loses the lease: early enough to stop before the end. */
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
