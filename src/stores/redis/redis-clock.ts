/**
 * An estimate of Redis' clock. No safety rests on it: it only stamps deadlines that Redis checks
 * against its own clock, and a wrong stamp costs a refused copy and one round trip.
 */
export class RedisClock {
  /** What to add to the monotonic clock. Starts from this process' own wall clock. */
  #offset: number = Date.now() - performance.now();

  /** Redis' time, in whole milliseconds, as far as we know. */
  now(): number {
    return Math.floor(performance.now() + this.#offset);
  }

  /**
   * Every reply bounds the estimate: Redis read its clock after the send and before the answer was
   * read. The estimate moves as little as it must, so no history is kept, and a late answer, whose
   * bounds are wide, does no harm.
   */
  learn(redisTimeMs: number, sentAt: number, readAt: number): void {
    const lowest = redisTimeMs - readAt;
    // Redis' milliseconds are rounded down.
    const highest = redisTimeMs + 1 - sentAt;
    this.#offset = Math.min(Math.max(this.#offset, lowest), highest);
  }
}
