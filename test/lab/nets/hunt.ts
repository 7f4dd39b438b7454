import fc from "fast-check";
import type { Framework } from "../../http/frameworks.ts";
import { Starvation } from "../../support/pulse.ts";
import { counting } from "../progress.ts";

/** What a net's program is given, as JSON in its first argument. */
export interface Plan {
  readonly runs: number;
  readonly seed: number;
  /** Goes straight to one program of the seed. */
  readonly path?: string | undefined;
  /** Only programs for this family of frameworks. */
  readonly family?: Framework["family"] | undefined;
  /** Only programs for the foreign calls whose name has this part. */
  readonly site?: string;
  /** The strict bounds of the laboratory, and not those of `npm test`. */
  readonly isStrict: boolean;
}

/** What a net's program sends back. */
export interface Haul {
  readonly runs: number;
  readonly seed: number;
  /** Programs that were red, each time while the machine kept their process from running. */
  readonly busy: readonly string[];
  /** The first program that was red, as small as fast-check could make it. */
  readonly failure?: { readonly program: unknown; readonly text: string; readonly path: string };
}

/** How late a process may be at pace 1, in ms. */
const punctualMs = 40;
const slowest = 32;

/**
 * Plays a program, and where it is red and its process was kept from running for too long, again with
 * all its times longer by as much: a bound says something of the sources only where the machine is
 * faster than the bound.
 *
 * @param play plays it with all its times multiplied by the pace, and resolves to what is wrong
 * @param busy gets the text of a program that was red at every pace, and never on a punctual machine
 */
export async function judged(
  play: (pace: number) => Promise<string | undefined>,
  busy: string[],
  measure: () => Pick<Starvation, "worstMs" | "stop"> = () => new Starvation(),
): Promise<string | undefined> {
  for (let pace = 1; ; ) {
    const starvation = measure();
    const failure = await play(pace)
      .catch((error: Error) => `${error.stack}`)
      .finally(() => starvation.stop());
    const needed = starvation.worstMs / punctualMs;
    if (failure === undefined || needed <= pace) return failure;
    if (pace === slowest) {
      busy.push(`${failure}\n  kept from running for ${Math.round(starvation.worstMs)} ms`);
      return undefined;
    }
    pace = Math.min(2 ** Math.ceil(Math.log2(needed)), slowest);
  }
}

/**
 * @param fails runs one program at a pace, and resolves to what is wrong with it.
 * @param known programs that were red once, which are run first.
 */
export async function hunt<Program>(
  { path, runs, seed }: Plan,
  programs: fc.Arbitrary<Program>,
  fails: (program: Program, pace: number) => Promise<string | undefined>,
  known: readonly Program[] = [],
): Promise<Haul> {
  let text = "";
  const busy: string[] = [];
  const count = counting();
  const property = fc.asyncProperty(programs, async (program) => {
    const failure = await judged((pace) => fails(program, pace), busy);
    count();
    if (failure !== undefined) text = failure;
    return failure === undefined;
  });
  const { counterexample, counterexamplePath, numRuns } = await fc.check(property, {
    numRuns: runs + known.length,
    seed,
    examples: known.map((program) => [program]),
    ...(path === undefined ? {} : { path }),
  });
  if (counterexample === null) return { runs: numRuns, seed, busy };
  const [program] = counterexample;
  return { runs: numRuns, seed, busy, failure: { program, text, path: counterexamplePath ?? "" } };
}

/** The whole of a net's program, which is a process of its own. */
export async function main(net: (plan: Plan) => Promise<Haul>): Promise<void> {
  process.send?.(await net(JSON.parse(process.argv[2] ?? "{}") as Plan));
}
