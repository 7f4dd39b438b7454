import fc from "fast-check";
import type { LockTimes } from "../../../src/lock/store.ts";
import { delay } from "./delay.ts";

export interface ReplicaPlan {
  /** How long a write takes there; as long again until its master knows. */
  readonly lagMs: number;
  /** Nothing reaches it for so long. */
  readonly stalled: Incident | undefined;
  /** The master is lost, and it takes over. */
  readonly failover: Incident | undefined;
}

interface Incident {
  readonly atMs: number;
  readonly forMs: number;
}

export function replicaPlan(times: LockTimes): fc.Arbitrary<ReplicaPlan> {
  const atMs = fc.nat({ max: 2 * times.ttlMs });
  return fc.record({
    // Less than the shortest time that is waited for it.
    lagMs: fc.constantFrom(0.1, 0.5, 2),
    stalled: fc.option(fc.record({ atMs, forMs: delay(times.ttlMs) }), {
      nil: undefined,
      freq: 2,
    }),
    // Shorter than a retire goes on for: what is given up runs out by itself, by a clock that may be set back.
    failover: fc.option(fc.record({ atMs, forMs: fc.nat({ max: times.ttlMs / 2 }) }), {
      nil: undefined,
      freq: 3,
    }),
  });
}
