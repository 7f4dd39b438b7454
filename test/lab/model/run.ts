import { rmSync } from "node:fs";
import { type Exploration, explore, missingPrograms, openFolder, SHORTEST, story } from "./spin.ts";
import { LIMITS, LONGER_RECORD, ONE_OWNER, RECORD, SAFEGUARDS, TWO_OWNERS } from "./switches.ts";

/**
 * `npm run lab -- model`: spin visits every state of `submit-lock.pml` with everything on, and then finds,
 * for each safeguard, what happens without it. `npm run lab -- model NO_RETIRE` tells that one
 * counterexample step by step; `--short` leaves out the largest runs.
 */
const missing = missingPrograms();
if (missing.length > 0) {
  console.log(`The model was NOT checked: ${missing.join(" and ")} not found.
  Debian, Ubuntu  sudo apt-get install spin gcc
  macOS           brew install spin (and the command line tools of Xcode)
  elsewhere       https://spinroot.com; CC names another C compiler`);
} else {
  const folder = openFolder();
  try {
    const named = process.argv.slice(2).filter((argument) => argument !== "--short");
    process.exitCode = named.length > 0 ? tell(named, folder) : checkAll(folder);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Returns the exit code. */
function checkAll(folder: string): number {
  let asExpected = true;

  const short = process.argv.includes("--short");
  console.log("Everything on:");
  const whole = [
    { what: "1 owner and a rival, longer budgets", constants: ONE_OWNER },
    { what: "the same with a record, one extend", constants: LONGER_RECORD },
    { what: "the same with a person who frees", constants: [...ONE_OWNER, "-DPERSON"] },
    { what: "the same with a clock that is set back", constants: [...ONE_OWNER, "-DSTEP"] },
    { what: "the same with nodes that refuse", constants: [...ONE_OWNER, "-DNODES"] },
    { what: "a record and a person, with shorter budgets", constants: [...RECORD, "-DPERSON"] },
    ...(short
      ? []
      : [
          { what: "with a record and two extends", constants: [...ONE_OWNER, "-DRECORD"] },
          { what: "2 owners and a rival", constants: TWO_OWNERS },
        ]),
  ].map(({ what, constants }) => {
    const found = explore(constants, ["-O2"], folder);
    asExpected &&= found.violated === undefined;
    const { states, seconds, megabytes } = found;
    return { what, result: resultOf(found), states, seconds, megabytes };
  });
  console.table(whole);

  for (const [title, switches] of [
    ["Without one safeguard, the shortest way to:", SAFEGUARDS],
    ["Beyond a limit, which is not a safeguard:", LIMITS],
  ] as const) {
    console.log(`\n${title}`);
    const rows = switches.map(({ flag, what, violates, constants }) => {
      const macros = [...constants, `-D${flag}`];
      const found = explore(macros, SHORTEST, folder);
      asExpected &&= found.violated === violates;
      const events = found.violated === undefined ? 0 : story(macros, folder).length;
      const { depth, seconds } = found;
      return {
        flag,
        what,
        violated: resultOf(found),
        depth,
        events,
        seconds,
      };
    });
    console.table(rows);
  }
  console.log(
    asExpected
      ? "As expected: nothing is violated with everything on, and each safeguard is needed."
      : "NOT as expected: see the tables.",
  );
  return asExpected ? 0 : 1;
}

/** The counterexamples of these switches, step by step. */
function tell(flags: readonly string[], folder: string): number {
  for (const flag of flags) {
    const known = [...SAFEGUARDS, ...LIMITS].find((candidate) => candidate.flag === flag);
    if (known === undefined) {
      const all = [...SAFEGUARDS, ...LIMITS].map((candidate) => candidate.flag).join(", ");
      console.error(`${flag}: expected --short or one of ${all}`);
      return 1;
    }
    const macros = [...known.constants, `-D${flag}`];
    const found = explore(macros, SHORTEST, folder);
    console.log(`\n${flag} (${known.what}): ${resultOf(found)}`);
    if (found.violated !== undefined) console.log(story(macros, folder).join("\n"));
  }
  return 0;
}

function resultOf({ violated }: Exploration): string {
  return violated ?? "errors: 0";
}
