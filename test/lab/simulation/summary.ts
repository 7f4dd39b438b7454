import type { Failure, HuntResult } from "./hunt.ts";
import { invariants } from "./invariants/verdict.ts";

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
