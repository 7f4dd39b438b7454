import { availableParallelism } from "node:os";
import { huntMutants, huntUnchanged } from "./hunt-mutants.ts";

/**
 * `npm run lab -- mutants`: each rule broken in turn, and by what the simulation noticed. Words
 * narrow the list. `--short` leaves out what is rarely noticed.
 */
const isShort = process.argv.includes("--short");
const words = process.argv.slice(2).filter((word) => word !== "--short");
const runs = Number(process.env["SIMULATION_RUNS"] ?? 50_000);
const seed = Number(process.env["SIMULATION_SEED"] ?? 1);
const catches = await huntMutants(
  runs,
  seed,
  availableParallelism(),
  ({ isRare, name }) => words.every((word) => name.includes(word)) && !(isShort && isRare),
);
console.table(
  catches.map(({ rule, mutant, after, by }) => ({
    rule,
    mutant,
    "caught after": after ?? `not within ${runs}`,
    "by the invariant": by,
  })),
);
await huntUnchanged(catches, seed);
const survivors = catches.filter(({ after }) => after === undefined);
console.log(
  survivors.length === 0
    ? `All ${catches.length} mutants were caught.`
    : `${survivors.length} of ${catches.length} mutants survived ${runs} schedules.`,
);
if (survivors.length > 0) process.exitCode = 1;
