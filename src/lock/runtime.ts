import { TimerWheel } from "../timer-wheel.ts";
import { within } from "../within.ts";
import type { Completing } from "./complete.ts";
import type { HeldLease, LeaseRuntime } from "./held-lease.ts";
import { neverThrowing } from "./never-throwing.ts";
import type { LockStore, LockTimes } from "./store.ts";
import { WaitGroup } from "./wait-group.ts";

/** For `close`. */
export interface CloseOptions {
  /**
   * How long live leases may go on before they count as lost, in milliseconds; 0 to 600 000.
   * @defaultValue 5_000
   */
  readonly timeoutMs?: number | undefined;
}

/** What the attempts, leases, releases and completes of one lock share. */
export function createRuntime(store: LockStore, times: LockTimes): LeaseRuntime {
  // Coarse steps: a few ms late is harmless here, and a busy process is not woken per attempt.
  const stepMs = Math.max(1, times.commandTimeoutMs / 100);
  // A holder is told at least a tenth of `ttlMs` before the end, so these steps are fine enough.
  const watchdogStepMs = Math.max(1, Math.min(times.ttlMs / 200, 50));
  return {
    store: neverThrowing(store),
    times,
    timers: new TimerWheel(stepMs, true),
    completions: new TimerWheel<Completing>(stepMs, true),
    // The work keeps the process alive, not its lock.
    watchdogs: new TimerWheel<HeldLease>(watchdogStepMs, false),
    active: new WaitGroup(),
    releases: new WaitGroup(),
    completes: new WaitGroup(),
    pendingRecordLength: 0,
    isDrained: false,
  };
}

/** Rule 14: live leases get `timeoutMs`, then completes and retires `2 × acquireTimeoutMs`. */
export async function drain(runtime: LeaseRuntime, timeoutMs: number): Promise<void> {
  const { active, completes, completions, releases, timers, times, watchdogs } = runtime;
  const drained = active.wait();
  await within(timeoutMs, drained);
  runtime.isDrained = true;
  for (const lease of watchdogs.armed()) lease.lose("closed");
  // Also for the attempts that are still under way, whose owner ids may have to be retired.
  const settled = drained.then(() => completes.wait()).then(() => releases.wait());
  await within(2 * times.acquireTimeoutMs, settled);
  for (const completing of completions.armed()) completing.drop();
  // What a handler completes from now on is sent as well, and keeps no process from its end.
  completions.unref();
  timers.unref();
}
