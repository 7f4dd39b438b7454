/**
 * Rules 12 and 20: an estimate of Redis' clock, and the floors of fencing tokens. No safety of the
 * lock rests on them. The estimate stamps deadlines, and a wrong stamp costs one more round trip.
 */
export class RedisClock {
  /** Redis' time less the monotonic clock, in ms; until a reply, by this process' wall clock. */
  #offset: number = Date.now() - performance.now();

  /** Rule 20, by node: the clocks of a Cluster's masters differ, and so do their tokens. */
  readonly #floorsUs = new Map<string, number>();

  /** Redis' time as estimated, in whole milliseconds. */
  now(): number {
    return Math.floor(performance.now() + this.#offset);
  }

  /**
   * Every reply bounds the estimate: Redis read its clock after the send and before the reply was
   * read (both by the monotonic clock). The estimate moves by the least that satisfies both bounds,
   * so no history is kept, and a late reply, whose bounds are wide, moves a right estimate little.
   */
  learn(redisTimeMs: number, sentAt: number, readAt: number): void {
    const lowest = redisTimeMs - readAt;
    // Redis' milliseconds are rounded down.
    const highest = redisTimeMs + 1 - sentAt;
    this.#offset = Math.min(Math.max(this.#offset, lowest), highest);
  }

  /** The highest fencing token or clock in the node's replies so far, in µs; 0 without any. */
  floorUs(node: string): number {
    return this.#floorsUs.get(node) ?? 0;
  }

  hear(node: string, microseconds: number): void {
    const floorUs = this.#floorsUs.get(node) ?? 0;
    if (microseconds > floorUs) this.#floorsUs.set(node, microseconds);
  }
}
