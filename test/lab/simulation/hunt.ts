import fc from "fast-check";
import type { Invariant, Violation } from "./invariants/invariants.ts";
import { run } from "./run.ts";
import { type Schedule, schedules } from "./schedule.ts";

/*
 * A program: it hunts in a process of its own, whose timers and clocks nobody else needs.
 */

/** What is looked for, and where. */
export interface HuntPlan {
  readonly runs: number;
  readonly seed: number;
  /** Goes straight to one schedule of a seed. */
  readonly path?: string;
  /** Makes the first schedule that fails smaller before it is shown. */
  readonly shrinks: boolean;
}

export interface HuntResult {
  readonly runs: number;
  readonly seed: number;
  readonly counts: Readonly<Record<string, number>>;
  readonly failure: Failure | undefined;
}

export interface Failure {
  readonly violation: Violation;
  readonly schedule: Schedule;
  readonly timeline: readonly string[];
  /** Where fast-check finds the schedule again. */
  readonly path: string;
  readonly seed: number;
}

/** Runs schedules until one breaks an invariant, or all have been run. */
async function hunt({ runs, seed, path, shrinks }: HuntPlan): Promise<HuntResult> {
  const counts = new Map<string, number>();
  let sought: Invariant | undefined;
  const property = fc.asyncProperty(schedules, async (schedule) => {
    const report = await run(schedule);
    for (const [what, number] of report.counts) {
      counts.set(what, (counts.get(what) ?? 0) + number);
    }
    const found = report.violation?.invariant;
    sought ??= found;
    // Shrinking stays with the invariant that it began with.
    return found === undefined || found !== sought;
  });
  const { counterexample, numRuns, counterexamplePath } = await fc.check(property, {
    numRuns: runs,
    seed,
    ...(path === undefined ? {} : { path }),
    endOnFailure: !shrinks,
  });
  const failure =
    counterexample === null
      ? undefined
      : await retell(counterexample[0], seed, counterexamplePath ?? "");
  return { runs: numRuns, seed, counts: Object.fromEntries(counts), failure };
}

async function retell(schedule: Schedule, seed: number, path: string): Promise<Failure> {
  const { violation, timeline } = await run(schedule, true);
  if (violation === undefined) throw new Error("a run that failed did not fail again");
  return { violation, schedule, timeline, path, seed };
}

const [plan = ""] = process.argv.slice(2);
process.send?.(await hunt(JSON.parse(plan) as HuntPlan));
