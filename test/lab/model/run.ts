import { spawnSync } from "node:child_process";
import { copyFileSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

// What is compiled into the model: how large it is, and which safeguard it lacks.

/** Small, with longer budgets and two extends under way: enough for a counterexample of most. */
const ONE_OWNER = ["-DOWNERS=1", "-DTIMEOUT=2", "-DEXTENDS=2"];
const TWO_OWNERS = ["-DOWNERS=2", "-DTIMEOUT=1", "-DEXTENDS=1"];
/** The rival stands for everybody else: with two owners the states take more than 4 GB. */
const RECORD = ["-DOWNERS=1", "-DTIMEOUT=1", "-DEXTENDS=1", "-DRECORD"];
const LONGER_RECORD = ["-DOWNERS=1", "-DTIMEOUT=2", "-DEXTENDS=1", "-DRECORD"];
/** Another model: calls with the keys of several customers. */
const SHARED = ["-DSHARED"];
/** Another one: what a run tells those who wait for it. */
const TOLD = ["-DTOLD"];
const PERSON = ["-DOWNERS=1", "-DTIMEOUT=1", "-DEXTENDS=1", "-DPERSON"];

interface Switch {
  readonly flag: string;
  readonly what: string;
  readonly violates: string;
  readonly constants: readonly string[];
}

/** Each safeguard by its switch, what it is, and the property that does not hold without it. */
function switches(
  constants: readonly string[],
  table: Readonly<Record<string, readonly [what: string, violates: string]>>,
): Switch[] {
  return Object.entries(table).map(([flag, [what, violates]]) => {
    return { flag, what, violates, constants };
  });
}

const SAFEGUARDS: readonly Switch[] = [
  ...switches(ONE_OWNER, {
    NO_CONFIRM: ["confirm with the same owner id", "no_self_contention"],
    NO_DEADLINE: ["deadline of a copy", "no_orphan"],
    NO_WINDOW: ["window before the deadline", "no_orphan"],
    NO_EPOCH: ["unclean answers do not close a copy", "no_orphan"],
    NO_RETIRE: ["retire", "no_orphan"],
    NO_FINALITY: ["finality by the server's clock", "no_orphan"],
    NO_RETIRE_BOUND: ["full length of a retire", "no_orphan"],
    NO_COMPARE_IN_DELETE: ["compare in delete", "no_foreign_delete"],
    NO_COMPARE_IN_EXTEND: ["compare in extend", "mutual_exclusion"],
    NO_LIFE_FROM_FIRST_SEND: ["life from before the first send", "mutual_exclusion"],
    NO_EXTEND_FROM_SEND: ["extend counts from its send", "mutual_exclusion"],
    NO_NEVER_BACK: ["an older extend takes nothing away", "no_needless_loss"],
    NO_LOST_IS_LOST: ["a doubtful lease that ran out is lost", "no_silent_loss"],
  }),
  // Another caller has to come back under the same id.
  ...switches(TWO_OWNERS, {
    NO_FRESH_ID: ["a fresh owner id for each attempt", "no_foreign_delete"],
  }),
  ...switches(RECORD, {
    NO_LOOK: ["an acquire looks for the record", "once"],
    NO_LOOK_IN_CONFIRM: ["a record beats one's own lock", "once"],
    NO_RECORD_BEFORE_RELEASE: ["in two steps: record, then release", "no_gap"],
    NO_LOCK_KEPT: ["the lock stays where the record is refused", "no_gap"],
    NO_WAIT_FOR_COMPLETE: ["retiring waits for the complete", "no_gap"],
    NO_FIRST_WRITER: ["the first writer of a record wins", "record_is_kept"],
    NO_ABSOLUTE_EXPIRY: ["the expiry is equal in every copy", "record_is_kept"],
    NO_EXPIRY_FIRST: ["too late is said before another's record", "no_false_alarm"],
    NO_RECORD_WITHOUT_LOCK: ["a record does not need the lock", "no_lost_answer"],
    NO_RETIRE_OF_REPLAYED: ["a retire after a replay", "no_orphan"],
  }),
  ...switches([...RECORD, "-DFORGET"], {
    NO_COMPARE_IN_FORGET: ["compare in forget", "no_blind_forget"],
  }),
  ...switches([...ONE_OWNER, "-DSTEP"], {
    NO_WHOLE_LIFE: ["a lengthened life is cut to no less than its own", "mutual_exclusion"],
  }),
  ...switches([...ONE_OWNER, "-DNODES"], {
    NO_FIRST_DEADLINE: ["what a node has refused keeps its deadline", "no_orphan"],
    NO_KEYLESS_CALL: ["a gathered call declares no key", "mutual_exclusion"],
  }),
  ...switches(SHARED, {
    NO_QUESTION: ["a shared call is asked for before", "mutual_exclusion"],
    NO_READ_BACK: ["what was written is read back", "mutual_exclusion"],
  }),
  ...switches(TOLD, {
    NO_RUN_COMPARED: ["an answer is told by the run that is waited for", "told_its_own"],
    NO_ONE_STEP: ["letting go and telling are one step", "told_at_all"],
  }),
  ...switches(PERSON, {
    NO_TOMBSTONE: ["free leaves a tombstone", "mutual_exclusion"],
    NO_KEPT_EXPIRY: ["a tombstone keeps the expiry", "mutual_exclusion"],
    NO_COMPARE_IN_FREE: ["compare in free", "no_foreign_free"],
  }),
];

const LIMITS = switches(ONE_OWNER, {
  WITH_LONGER_DELAYS: ["delay as long as the clock is wrong", "no_orphan"],
});

// The model is explored so: spin writes a verifier, a C compiler makes `pan` of it, and `pan` searches.
const MODEL = "submit-lock.pml";
const COMPILER = process.env["CC"] ?? "cc";
const RUN_BOUND_MS = 10 * 60_000;
const MEMORY_MB = 4_000;

/**
 * Breadth first, so that the trail is the shortest. These runs take less time than an optimising
 * compiler would.
 */
const SHORTEST = ["-O0", "-DBFS"];

/** Those of the programs that are not there. */
function missingPrograms(): string[] {
  return [
    ["spin", "-V"],
    [COMPILER, "--version"],
  ]
    .filter(([program = "", argument = ""]) => spawnSync(program, [argument]).status !== 0)
    .map(([program = ""]) => program);
}

/** A new folder with the model in it: spin and pan read and write by that name where they run. */
function openFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "submit-lock-model-"));
  const home = fileURLToPath(new URL(".", import.meta.url));
  for (const part of readdirSync(home).filter((name) => name.endsWith(".pml"))) {
    copyFileSync(join(home, part), join(folder, part));
  }
  return folder;
}

function explore(macros: readonly string[], compilerFlags: readonly string[], folder: string) {
  run("spin", ["-a", ...macros, MODEL], folder);
  // NOREDUCE: every step is about shared variables, so the partial order reduction finds nothing.
  const flags = ["-w", "-DSAFETY", "-DNOREDUCE", `-DMEMLIM=${MEMORY_MB}`];
  run(COMPILER, [...flags, ...compilerFlags, "-o", "pan", "pan.c"], folder);
  const from = performance.now();
  const output = run(join(folder, "pan"), ["-m100000", "-w25"], folder);
  const seconds = Math.round((performance.now() - from) / 100) / 10;

  // `pan` exits 0 whatever it finds, and a search that was cut short has found nothing either.
  const errors = numberIn(output, /errors: (\d+)/);
  const violated = /assertion violated (\w+)/.exec(output)?.[1];
  const complete = !/Search not completed|max search depth too small|out of memory/.test(output);
  if (errors === undefined || (violated === undefined && (errors > 0 || !complete))) {
    throw new Error(`pan ${macros.join(" ")} did not finish its search:\n${output}`);
  }
  return {
    /** The property that does not hold; all of them do otherwise. */
    violated: violated ?? "errors: 0",
    isViolated: violated !== undefined,
    depth: numberIn(output, /depth reached (\d+)/) ?? 0,
    states: numberIn(output, /(\S+) states, stored/) ?? 0,
    seconds,
    megabytes: Math.round(numberIn(output, /(\S+)\s+total actual memory usage/) ?? 0),
  };
}

/** What happened on the trail that pan has just written. */
function story(macros: readonly string[], folder: string): string[] {
  const output = run("spin", ["-t", "-T", ...macros, MODEL], folder);
  return output
    .split("\n")
    .filter((line) => /^(owner|server|reset|the rival|a person|--)/.test(line));
}

function numberIn(text: string, pattern: RegExp): number | undefined {
  const found = pattern.exec(text)?.[1];
  return found === undefined ? undefined : Number(found);
}

function run(program: string, args: readonly string[], cwd: string): string {
  const { status, stdout, stderr, error } = spawnSync(program, args, {
    cwd,
    encoding: "utf8",
    timeout: RUN_BOUND_MS,
    maxBuffer: 64 * 1024 * 1024,
  });
  if (error !== undefined) throw error;
  if (status !== 0) throw new Error(`${program} ${args.join(" ")} failed:\n${stdout}${stderr}`);
  return stdout;
}

/**
 * `npm run lab -- model`: spin visits every state of `submit-lock.pml` with everything on, and then finds,
 * for each safeguard, what happens without it. `npm run lab -- model NO_RETIRE` tells that one
 * counterexample step by step; `--short` leaves out the largest runs, `--syntax` runs none.
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
    const named = process.argv.slice(2).filter((argument) => !/^--(short|syntax)$/.test(argument));
    process.exitCode = named.length > 0 ? tell(named, folder) : checkAll(folder);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Returns the exit code. */
function checkAll(folder: string): number {
  let asExpected = true;

  const short = process.argv.includes("--short");
  const wholes = [
    { what: "1 owner and a rival, longer budgets", constants: ONE_OWNER },
    { what: "the same with a record, one extend", constants: LONGER_RECORD },
    { what: "the same with a person who frees", constants: [...ONE_OWNER, "-DPERSON"] },
    { what: "the same with a clock that is set back", constants: [...ONE_OWNER, "-DSTEP"] },
    { what: "the same with nodes that refuse", constants: [...ONE_OWNER, "-DNODES"] },
    { what: "calls of several customers, and shards", constants: SHARED },
    { what: "callers that wait, and what runs tell", constants: TOLD },
    { what: "a record that a person forgets", constants: [...RECORD, "-DFORGET"] },
    { what: "a record and a person, with shorter budgets", constants: [...RECORD, "-DPERSON"] },
    ...(short
      ? []
      : [
          { what: "with a record and two extends", constants: [...ONE_OWNER, "-DRECORD"] },
          { what: "2 owners and a rival", constants: TWO_OWNERS },
        ]),
  ];
  if (process.argv.includes("--syntax")) {
    const reduced = [...SAFEGUARDS, ...LIMITS].map((each) => [...each.constants, `-D${each.flag}`]);
    const all = [...wholes.map(({ constants }) => constants), ...reduced];
    for (const macros of all) run("spin", ["-a", ...macros, MODEL], folder);
    console.log(`Each of ${all.length} forms of the model can be read.`);
    return 0;
  }
  console.log("Everything on:");
  const whole = wholes.map(({ what, constants }) => {
    const found = explore(constants, ["-O2"], folder);
    asExpected &&= !found.isViolated;
    const { violated: result, states, seconds, megabytes } = found;
    return { what, result, states, seconds, megabytes };
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
      const events = found.isViolated ? story(macros, folder).length : 0;
      const { violated, depth, seconds } = found;
      return { flag, what, violated, depth, events, seconds };
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
    console.log(`\n${flag} (${known.what}): ${found.violated}`);
    if (found.isViolated) console.log(story(macros, folder).join("\n"));
  }
  return 0;
}
