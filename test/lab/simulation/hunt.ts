import { availableParallelism } from "node:os";
import { parseArgs } from "node:util";
import fc from "fast-check";
import { Child } from "../../support/child.ts";
import { compiled } from "../../support/compiled.ts";
import { counting, type Played, Progress } from "../progress.ts";
import { type Invariant, invariants, type Violation } from "./invariants/invariants.ts";
import { run } from "./run.ts";
import { type Schedule, schedules } from "./schedule.ts";

/**
 * @param texts of source files, in place of what is in them.
 * @param onPlayed how many schedules were run so far.
 */
export async function huntElsewhere(
  plan: HuntPlan,
  texts?: ReadonlyMap<string, string>,
  onPlayed?: (played: number) => void,
): Promise<HuntResult> {
  const file = new URL("./hunt.ts", import.meta.url);
  const program = await compiled({ file, texts });
  const hours = 10 * 3_600_000;
  const child = new Child<HuntResult | Played>(program, [JSON.stringify(plan)]);
  child.onMessage((message) => {
    if ("played" in message) onPlayed?.(message.played);
  });
  return (await child.next(hours, (message) => "runs" in message)) as HuntResult;
}

/** Splits the runs over several processes, each with a seed of its own. */
export async function huntInParallel(
  runs: number,
  seed: number,
  processes: number,
): Promise<HuntResult[]> {
  const share = Math.ceil(runs / processes);
  const progress = new Progress(runs, "schedules");
  return await Promise.all(
    Array.from({ length: processes }, (_, index) => {
      const plan = { runs: share, seed: seed + index, shrinks: true };
      return huntElsewhere(plan, undefined, progress.at(index));
    }),
  ).finally(() => progress.stop());
}

/** What many runs did, in words. */
export function summary(results: readonly HuntResult[], seconds: number): string {
  const counts = new Map<string, number>();
  let runs = 0;
  for (const result of results) {
    runs += result.runs;
    for (const [what, number] of Object.entries(result.counts)) {
      counts.set(what, (counts.get(what) ?? 0) + number);
    }
  }
  const lines = [...counts]
    .sort(([one], [other]) => one.localeCompare(other))
    .map(([what, number]) => `  ${number.toLocaleString("en").padStart(12)}  ${what}`);
  const seeds = results.map(({ seed }) => seed).join(", ");
  const speed = Math.round(runs / seconds).toLocaleString("en");
  return [
    `${runs.toLocaleString("en")} schedules in ${seconds.toFixed(1)} s (${speed} a second), seeds ${seeds}`,
    ...lines,
  ].join("\n");
}

/** A schedule that broke an invariant: what happened, and how to see it again. */
export function story({ violation, schedule, timeline, seed, path }: Failure): string {
  return [
    `BROKEN: ${invariants[violation.invariant]}`,
    `  ${violation.text}`,
    "",
    "the schedule:",
    JSON.stringify(schedule, undefined, 1),
    "",
    "what happened:",
    ...timeline,
    "",
    `again: npm run lab -- simulation --seed ${seed} --path ${path}`,
  ].join("\n");
}

/**
 * `npm run lab -- simulation`: SIMULATION_RUNS schedules (100 000) from SIMULATION_SEED or `--seed` on.
 * `--seed S --path P` runs exactly one of them again, and tells what happened.
 */
export async function runLaboratory(): Promise<void> {
  const { values } = parseArgs({ options: { seed: { type: "string" }, path: { type: "string" } } });
  const runs = Number(process.env["SIMULATION_RUNS"] ?? 100_000);
  const seed = Number(
    values.seed ?? process.env["SIMULATION_SEED"] ?? Math.trunc(Math.random() * 2 ** 31),
  );

  const from = performance.now();
  const results =
    values.path === undefined
      ? await huntInParallel(runs, seed, availableParallelism())
      : [await huntElsewhere({ runs: 1, seed, path: values.path, shrinks: false })];
  console.log(summary(results, (performance.now() - from) / 1_000));
  const failures = results.flatMap(({ failure }) => failure ?? []);
  for (const failure of failures) console.log(`\n${story(failure)}`);
  if (failures.length > 0) process.exitCode = 1;
  else console.log("\nEvery invariant held.");
}

/*
 * A program: it hunts in a process of its own, whose timers and clocks nobody else needs.
 */

/** What is looked for, and where. */
export interface HuntPlan {
  readonly runs: number;
  readonly seed: number;
  /** The schedule of the seed to begin with, such as `7`, or one that was shrunk from it. */
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
  const count = counting();
  const property = fc.asyncProperty(schedules, async (schedule) => {
    const report = await run(schedule);
    count();
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

// Only as a process of its own, not where this file is imported.
const plan = process.argv[2] ?? "";
if (plan.startsWith("{")) process.send?.(await hunt(JSON.parse(plan) as HuntPlan));
