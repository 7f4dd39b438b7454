import type { Framework } from "../../http/frameworks.ts";
import { type Change, changed, misfits, sources } from "../simulation/mutants/workshop.ts";
import { cast, type NetName } from "./nets.ts";

/** A flaw that was in the sources once, or could be, put into them. */
export interface Flaw extends Change {
  readonly net: NetName;
  /** The family of frameworks on whose programs the net must notice it. */
  readonly family: Framework["family"];
}

export const flaws: readonly Flaw[] = [];

/** `npm run lab -- net-mutants [words]`: each flaw put into the sources, and whether its net is red. */
export async function run(): Promise<void> {
  const words = process.argv.slice(2);
  const outdated = await misfits(flaws);
  if (outdated.length > 0) throw new Error(outdated.join("\n"));
  const chosen = flaws.filter(({ family, name, net }) =>
    words.every((word) => `${net} ${family} ${name}`.includes(word)),
  );
  let survivors = 0;
  for (const flaw of chosen) {
    const { family, name, net } = flaw;
    const plan = { runs: 5_000, seed: 1, family, isStrict: false };
    const { failure, runs } = await cast(net, plan, changed(await sources(), flaw));
    if (failure === undefined) survivors++;
    const outcome = failure === undefined ? "SURVIVED" : failure.text.split("\n", 1)[0];
    console.log(`${net}, ${family}: ${name}\n  after ${runs}: ${outcome}`);
  }
  console.log(`${chosen.length - survivors} of ${chosen.length} flaws were noticed.`);
  if (survivors > 0) process.exitCode = 1;
}
