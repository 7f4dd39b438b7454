import { performance, wallClock } from "../../time.ts";

/**
 * Rules 12 and 20: an estimate of Redis' clock, and the floors of fencing tokens. No safety of the
 * lock rests on them. The estimate stamps deadlines, and a wrong stamp costs one more round trip.
 */
export class RedisClock {
  /** Redis' time less the monotonic clock, in ms; until a reply, by this process' wall clock. */
  #offset: number = wallClock.now() - performance.now();

  /** Rule 20, by node: the clocks of a Cluster's masters differ, and so do their tokens. */
  readonly #floorsUs = new Map<string, number>();

  /** Redis' time as estimated, in whole milliseconds. */
  now(): number {
    return Math.floor(performance.now() + this.#offset);
  }

  /**
   * Rule 12: every reply bounds the estimate, because Redis read its clock between the send and the
   * reading. The estimate moves by the least that satisfies both bounds, so a late reply, whose
   * bounds are wide, moves a right estimate little. Rule 20: raises the node's floor.
   */
  learn(node: string, redisTimeMs: number, token: number, sentAt: number, readAt: number): void {
    const lowest = redisTimeMs - readAt;
    // Redis' milliseconds are rounded down.
    const highest = redisTimeMs + 1 - sentAt;
    this.#offset = Math.min(Math.max(this.#offset, lowest), highest);
    const heardUs = Math.max(redisTimeMs * 1_000, token);
    if (heardUs > (this.#floorsUs.get(node) ?? 0)) this.#floorsUs.set(node, heardUs);
  }

  /** The highest fencing token or clock in the node's replies so far, in µs; 0 without any. */
  floorUs(node: string): number {
    return this.#floorsUs.get(node) ?? 0;
  }
}
