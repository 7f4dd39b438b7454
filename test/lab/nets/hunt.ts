import fc from "fast-check";
import type { Framework } from "../../http/frameworks.ts";

/** What a net's program is given, as JSON in its first argument. */
export interface Plan {
  readonly runs: number;
  readonly seed: number;
  /** Goes straight to one program of the seed. */
  readonly path?: string | undefined;
  /** Only programs for this family of frameworks. */
  readonly family?: Framework["family"] | undefined;
  /** The strict bounds of the laboratory, and not those of `npm test`. */
  readonly isStrict: boolean;
}

/** What a net's program sends back. */
export interface Haul {
  readonly runs: number;
  readonly seed: number;
  /** The first program that was red, as small as fast-check could make it. */
  readonly failure?: { readonly program: unknown; readonly text: string; readonly path: string };
}

/**
 * @param fails runs one program, and resolves to what is wrong with it.
 * @param known programs that were red once, which are run first.
 */
export async function hunt<Program>(
  { path, runs, seed }: Plan,
  programs: fc.Arbitrary<Program>,
  fails: (program: Program) => Promise<string | undefined>,
  known: readonly Program[] = [],
): Promise<Haul> {
  let text = "";
  const property = fc.asyncProperty(programs, async (program) => {
    const failure = await fails(program).catch((error: Error) => `${error.stack}`);
    if (failure !== undefined) text = failure;
    return failure === undefined;
  });
  const { counterexample, counterexamplePath, numRuns } = await fc.check(property, {
    numRuns: runs + known.length,
    seed,
    examples: known.map((program) => [program]),
    ...(path === undefined ? {} : { path }),
  });
  if (counterexample === null) return { runs: numRuns, seed };
  const [program] = counterexample;
  return { runs: numRuns, seed, failure: { program, text, path: counterexamplePath ?? "" } };
}

/** The whole of a net's program, which is a process of its own. */
export async function main(net: (plan: Plan) => Promise<Haul>): Promise<void> {
  process.send?.(await net(JSON.parse(process.argv[2] ?? "{}") as Plan));
}
