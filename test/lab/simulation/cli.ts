import { availableParallelism } from "node:os";
import { parseArgs } from "node:util";
import { huntElsewhere, huntInParallel, story, summary } from "./hunt.ts";

/**
 * `npm run lab -- simulation`: SIMULATION_RUNS schedules (100 000) from SIMULATION_SEED or `--seed` on.
 * `--seed S --path P` runs exactly one of them again, and tells what happened.
 */
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
