import { availableParallelism } from "node:os";
import { huntElsewhere } from "../hunters.ts";
import { invariants } from "../invariants/invariants.ts";
import { mutations } from "./mutations.ts";
import { changed, type Mutation, misfits, sources } from "./workshop.ts";

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

interface Catch {
  readonly mutant: string;
  readonly rule: string;
  /** After how many schedules, or `undefined` if it survived. */
  readonly after: number | undefined;
  readonly by: string;
}

/** Hunts every mutant for so many schedules at most, so many mutants at a time. */
async function huntMutants(
  runs: number,
  seed: number,
  atATime: number,
  wanted: (mutation: Mutation) => boolean = () => true,
): Promise<Catch[]> {
  const outdated = await misfits(mutations);
  if (outdated.length > 0) throw new Error(outdated.join("\n"));
  const chosen = mutations.filter(wanted);
  const catches: Catch[] = new Array(chosen.length);
  let next = 0;
  const worker = async () => {
    for (;;) {
      const index = next++;
      const mutation = chosen[index];
      if (mutation === undefined) return;
      catches[index] = await huntMutant(mutation, runs, seed);
    }
  };
  await Promise.all(Array.from({ length: atATime }, worker));
  return catches;
}

/**
 * Hunts the sources as they are for as long as the slowest mutant lived: a schedule that breaks them,
 * too, catches nothing.
 *
 * @throws Error with the number of that schedule.
 */
async function huntUnchanged(catches: readonly Catch[], seed: number): Promise<void> {
  const runs = Math.max(...catches.map(({ after = 0 }) => after));
  const { failure, runs: after } = await huntElsewhere({ runs, seed, shrinks: false });
  if (failure === undefined) return;
  const broken = invariants[failure.violation.invariant];
  throw new Error(`schedule ${after} breaks the sources as they are: ${broken}`);
}

async function huntMutant(mutation: Mutation, runs: number, seed: number): Promise<Catch> {
  const texts = changed(await sources(), mutation);
  const { failure, runs: after } = await huntElsewhere({ runs, seed, shrinks: false }, texts);
  return {
    mutant: mutation.name,
    rule: mutation.rule,
    after: failure === undefined ? undefined : after,
    by: failure === undefined ? "SURVIVED" : invariants[failure.violation.invariant],
  };
}
