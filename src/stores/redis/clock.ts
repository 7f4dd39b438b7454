import { performance, wallClock } from "../../time.ts";

interface NodeClock {
  /** Redis' time less the monotonic clock, in ms. */
  offset: number;
  /** The highest fencing token or clock in the node's replies so far, in µs; 0 without any. */
  floorUs: number;
}

/**
 * Rules 12 and 20: estimates of the servers' clocks, and the floors of fencing tokens. No safety
 * depends on them: an estimate stamps deadlines, and a wrong one costs one more round trip.
 */
export class RedisClock {
  /** One for each node: the clocks of a Cluster's masters differ. */
  readonly #nodes = new Map<string, NodeClock>();
  /** The newest estimate, which a node without a reply begins with: at first this process' clock. */
  #newestOffset: number = wallClock.now() - performance.now();

  now(node: string): number {
    return Math.floor(performance.now() + (this.#nodes.get(node)?.offset ?? this.#newestOffset));
  }

  /**
   * Rule 12: Redis read its clock between the send and the reading of a reply, which bounds the
   * estimate. It moves as little as both bounds allow: a late reply, with wide bounds, hardly moves
   * a right one. Rule 20: raises the node's floor.
   */
  learn(node: string, redisTimeMs: number, token: number, sentAt: number, readAt: number): void {
    let clock = this.#nodes.get(node);
    if (clock === undefined) {
      clock = { offset: this.#newestOffset, floorUs: 0 };
      this.#nodes.set(node, clock);
    }
    const lowest = redisTimeMs - readAt;
    // Redis' milliseconds are rounded down.
    const highest = redisTimeMs + 1 - sentAt;
    clock.offset = Math.min(Math.max(clock.offset, lowest), highest);
    this.#newestOffset = clock.offset;
    clock.floorUs = Math.max(clock.floorUs, redisTimeMs * 1_000, token);
  }

  floorUs(node: string): number {
    return this.#nodes.get(node)?.floorUs ?? 0;
  }
}
