import { huntElsewhere } from "../hunters.ts";
import { invariants } from "../invariants/verdict.ts";
import type { Mutation } from "./mutation.ts";
import { mutations } from "./mutations.ts";
import { changed, misfits, sources } from "./workshop.ts";

export interface Catch {
  readonly mutant: string;
  readonly rule: string;
  /** After how many schedules, or `undefined` if it survived. */
  readonly after: number | undefined;
  readonly by: string;
}

/** Hunts every mutant for so many schedules at most, so many mutants at a time. */
export async function huntMutants(
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
export async function huntUnchanged(catches: readonly Catch[], seed: number): Promise<void> {
  const runs = Math.max(...catches.map(({ after = 0 }) => after));
  const { failure, runs: after } = await huntElsewhere({ runs, seed, shrinks: false });
  if (failure === undefined) return;
  const broken = invariants[failure.invariant];
  throw new Error(`schedule ${after} breaks the sources as they are: ${broken}`);
}

async function huntMutant(mutation: Mutation, runs: number, seed: number): Promise<Catch> {
  const texts = changed(await sources(), mutation);
  const { failure, runs: after } = await huntElsewhere({ runs, seed, shrinks: false }, texts);
  return {
    mutant: mutation.name,
    rule: mutation.rule,
    after: failure === undefined ? undefined : after,
    by: failure === undefined ? "SURVIVED" : invariants[failure.invariant],
  };
}
