import { Child } from "../../support/child.ts";
import { compiled } from "../../support/compiled.ts";
import type { Failure, HuntPlan, HuntResult } from "./hunt.ts";
import { invariants } from "./invariants/invariants.ts";

/** @param texts of source files, in place of what is in them. */
export async function huntElsewhere(
  plan: HuntPlan,
  texts?: ReadonlyMap<string, string>,
): Promise<HuntResult> {
  const file = new URL("./hunt.ts", import.meta.url);
  const program = await compiled({ file, texts });
  const hours = 10 * 3_600_000;
  return await new Child<HuntResult>(program, [JSON.stringify(plan)]).next(hours);
}

/** Splits the runs over several processes, each with a seed of its own. */
export async function huntInParallel(
  runs: number,
  seed: number,
  processes: number,
): Promise<HuntResult[]> {
  const share = Math.ceil(runs / processes);
  return await Promise.all(
    Array.from({ length: processes }, (_, index) =>
      huntElsewhere({ runs: share, seed: seed + index, shrinks: true }),
    ),
  );
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
