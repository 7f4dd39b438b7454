/**
 * Rule 12: an estimate of Redis' clock. No safety rests on it: it only stamps the deadlines, which
 * Redis compares with its own clock, and a wrong stamp costs one more round trip.
 */
export class RedisClock {
  /** What to add to the monotonic clock. Starts at this process' own wall clock. */
  #offset: number = Date.now() - performance.now();

  /** Rule 20, by node: on a Cluster the masters' clocks differ, and so would their tokens. */
  readonly #floorsUs = new Map<string, number>();

  /** Redis' time, in whole milliseconds, as far as it is known. */
  now(): number {
    return Math.floor(performance.now() + this.#offset);
  }

  /**
   * Every reply bounds the estimate: Redis read its clock after the send and before the reply was
   * read. The estimate moves by the least that satisfies both bounds, so no history is kept, and a
   * late reply, whose bounds are wide, does no harm.
   */
  learn(redisTimeMs: number, sentAt: number, readAt: number): void {
    const lowest = redisTimeMs - readAt;
    // Redis' milliseconds are rounded down.
    const highest = redisTimeMs + 1 - sentAt;
    this.#offset = Math.min(Math.max(this.#offset, lowest), highest);
  }

  /** The highest fencing token or clock that was heard from the node, in microseconds; 0 for none. */
  floorUs(node: string): number {
    return this.#floorsUs.get(node) ?? 0;
  }

  hear(node: string, microseconds: number): void {
    if (microseconds > this.floorUs(node)) this.#floorsUs.set(node, microseconds);
  }
}
