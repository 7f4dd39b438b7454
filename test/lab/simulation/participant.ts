import type { SubmitLock } from "../../../src/lock/submit-lock.ts";
import type { Health } from "./invariants/health.ts";
import type { SimulatedClient } from "./network/simulated-client.ts";
import type { ProcessPlan } from "./schedule.ts";
import type { Machine } from "./time/machine.ts";

/** One process that uses the lock. */
export interface Participant {
  readonly plan: ProcessPlan;
  readonly machine: Machine;
  readonly health: Health;
  readonly client: SimulatedClient;
  readonly clients: Set<SimulatedClient>;
  readonly lock: SubmitLock;
  /** The longest that one message takes on a healthy network. */
  readonly longestLatencyMs: number;
  /** The bound that its first `close` was given. */
  readonly closeTimeoutMs: number | undefined;
  /** Its `close` has ended: what could not be retired by then runs out by itself. */
  readonly lockIsGone: boolean;
}
