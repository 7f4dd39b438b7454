import { availableParallelism } from "node:os";
import { Progress } from "../../progress.ts";
import { huntElsewhere } from "../hunt.ts";
import { invariants } from "../invariants/invariants.ts";
import { changed, type Mutation, misfits, mutations, sources } from "./workshop.ts";

/**
 * `npm run lab -- mutants`: each rule broken in turn, and by what the simulation noticed. Words
 * narrow the list. `--short` leaves out what is rarely noticed.
 */
const isShort = process.argv.includes("--short");
const words = process.argv.slice(2).filter((word) => word !== "--short");
const runs = Number(process.env["SIMULATION_RUNS"] ?? 50_000);
const seed = Number(process.env["SIMULATION_SEED"] ?? 1);

const outdated = await misfits();
if (outdated.length > 0) throw new Error(outdated.join("\n"));
const chosen = mutations.filter(
  ({ isRare, name }) => words.every((word) => name.includes(word)) && !(isShort && isRare),
);
if (chosen.length === 0) throw new Error(`no mutant's name has "${words.join('" and "')}"`);
const catches = await huntAll(chosen);
console.table(
  catches.map(({ mutation, after, by }) => ({
    rule: mutation.rule,
    mutant: mutation.name,
    "caught after": after ?? `not within ${runsOf(mutation)}`,
    "by the invariant": by,
  })),
);
await huntUnchanged(Math.max(...catches.map(({ after = 0 }) => after)));
const survivors = catches.filter(({ after }) => after === undefined);
console.log(
  survivors.length === 0
    ? `All ${catches.length} mutants were caught.`
    : `${survivors.length} of ${catches.length} mutants survived.`,
);
if (survivors.length > 0) process.exitCode = 1;

interface Catch {
  readonly mutation: Mutation;
  /** After how many schedules, or `undefined` if it survived. */
  readonly after: number | undefined;
  readonly by: string;
}

/** As many at a time as there are processors. */
async function huntAll(mutations: readonly Mutation[]): Promise<Catch[]> {
  const catches: Catch[] = [];
  const waiting = mutations.entries();
  const progress = new Progress(mutations.length, "mutants");
  let played = 0;
  const worker = async () => {
    for (const [index, mutation] of waiting) {
      catches[index] = await huntMutant(mutation);
      progress.at(0)(++played);
    }
  };
  const workers = Array.from({ length: availableParallelism() }, worker);
  await Promise.all(workers).finally(() => progress.stop());
  return catches;
}

function runsOf({ isRare }: Mutation): number {
  return isRare ? 3 * runs : runs;
}

async function huntMutant(mutation: Mutation): Promise<Catch> {
  const texts = changed(await sources(), mutation);
  const plan = { runs: runsOf(mutation), seed, shrinks: false };
  const { failure, runs: after } = await huntElsewhere(plan, texts);
  if (failure === undefined) return { mutation, after: undefined, by: "SURVIVED" };
  return { mutation, after, by: invariants[failure.violation.invariant] };
}

/**
 * Hunts the sources as they are for as long as the slowest mutant lived: a schedule that breaks them,
 * too, catches nothing.
 *
 * @throws Error with the number of that schedule.
 */
async function huntUnchanged(runs: number): Promise<void> {
  const { failure, runs: after } = await huntElsewhere({ runs, seed, shrinks: false });
  if (failure === undefined) return;
  const broken = invariants[failure.violation.invariant];
  throw new Error(`schedule ${after} breaks the sources as they are: ${broken}`);
}
