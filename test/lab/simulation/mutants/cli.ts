import { availableParallelism } from "node:os";
import { Progress } from "../../progress.ts";
import { huntElsewhere } from "../hunt.ts";
import { invariants } from "../invariants/invariants.ts";
import { changed, type Mutation, misfits, mutations, sources } from "./workshop.ts";

/**
 * `npm run lab -- mutants`: each rule broken in turn, and by what the simulation noticed. Words
 * narrow the list.
 */
const words = process.argv.slice(2);
const runs = Number(process.env["SIMULATION_RUNS"] ?? 50_000);
const seed = Number(process.env["SIMULATION_SEED"] ?? 1);

const outdated = await misfits();
if (outdated.length > 0) throw new Error(outdated.join("\n"));
const chosen = mutations.filter(({ name }) => words.every((word) => name.includes(word)));
if (chosen.length === 0) throw new Error(`no mutant's name has "${words.join('" and "')}"`);
const catches = await huntAll(chosen);
console.table(
  catches.map(({ mutation, at, by }) => ({
    rule: mutation.rule,
    mutant: mutation.name,
    "caught by schedule": at ?? `none of ${runs}`,
    "by the invariant": by,
  })),
);
await huntUnchanged(catches);
const survivors = catches.filter(({ at }) => at === undefined);
console.log(
  survivors.length === 0
    ? `All ${catches.length} mutants were caught.`
    : `${survivors.length} of ${catches.length} mutants survived.`,
);
if (survivors.length > 0) process.exitCode = 1;

interface Catch {
  readonly mutation: Mutation;
  /** The schedule of the seed, or `undefined` if it survived. */
  readonly at: number | undefined;
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

async function huntMutant(mutation: Mutation): Promise<Catch> {
  const texts = changed(await sources(), mutation);
  const { at, failure } = await hunt(mutation.from, runs, texts);
  if (failure === undefined) return { mutation, at: undefined, by: "SURVIVED" };
  return { mutation, at, by: invariants[failure.violation.invariant] };
}

/**
 * Hunts the sources as they are over every schedule that a mutant was hunted with: one that breaks
 * them, too, catches nothing.
 *
 * @throws Error with the number of that schedule.
 */
async function huntUnchanged(catches: readonly Catch[]): Promise<void> {
  const ends = new Map<number, number>();
  for (const { mutation, at } of catches) {
    if (at === undefined) continue;
    ends.set(mutation.from, Math.max(ends.get(mutation.from) ?? 0, at + 1));
  }
  for (const [from, end] of ends) {
    const { at, failure } = await hunt(from, end - from);
    if (failure === undefined) continue;
    const broken = invariants[failure.violation.invariant];
    throw new Error(`schedule ${at} breaks the sources as they are: ${broken}`);
  }
}

/** @returns the last schedule that was run, counted from the seed's first, and what it broke. */
async function hunt(from: number, runs: number, texts?: ReadonlyMap<string, string>) {
  const plan = { runs, seed, path: String(from), shrinks: false };
  const { failure, runs: played } = await huntElsewhere(plan, texts);
  return { at: from + played - 1, failure };
}
