import fc from "fast-check";
import { allMain, type Framework, newest } from "../../../http/frameworks.ts";
import { counting } from "../../progress.ts";
import { type Haul, judged, main, type Plan } from "../hunt.ts";
import { type ValueName, values } from "./fault.ts";
import { type Play, type Program, play, prepareProcess, type Seen } from "./play.ts";
import type { Outcome } from "./site.ts";
import { sites } from "./sites.ts";

/*
 * A program: each call that a guard makes into foreign code goes wrong in each way, one at a time.
 * Most programs wait, so many of them run at a time.
 */

const atATime = 24;
const simplest = { value: "an error", after: 0, isOnce: true, leaves: false } as const;

/** Every site with this part in its name, with each of its ways, on each framework that has it. */
function table(
  frameworks: readonly Framework[],
  part = "",
): Pick<Program, "framework" | "site" | "way">[] {
  return frameworks.flatMap((framework) =>
    Object.entries(sites)
      .filter(([name, { runsOn }]) => name.includes(part) && (runsOn?.(framework) ?? true))
      .flatMap(([site, { ways }]) => ways.map((way) => ({ framework: framework.name, site, way }))),
  );
}

async function net({ family, isStrict, path, runs, seed, site }: Plan): Promise<Haul> {
  prepareProcess();
  const chosen = (isStrict ? allMain : newest).filter(
    (each) => family === undefined || each.family === family,
  );
  const judge = new Judge(chosen);
  const rows = table(chosen, site);
  if (rows.length === 0) throw new Error(`There is no site "${site}".`);
  const random = fc
    .record({
      row: fc.constantFrom(...rows),
      value: fc.constantFrom(...(Object.keys(values) as ValueName[])),
      after: fc.nat({ max: 4 }),
      isOnce: fc.boolean(),
      leaves: fc.boolean(),
    })
    .map(({ row, ...more }): Program => ({ ...row, ...more }));
  const programs =
    path === undefined
      ? [
          ...rows.map((row): Program => ({ ...row, ...simplest })),
          ...fc.sample(random, { numRuns: runs, seed }),
        ]
      : [JSON.parse(path) as Program];
  const red = await judge.redOf(programs);
  // On a busy machine a program may have ended before its fault: play it again, with few others.
  const left = programs.filter(({ site }) => !judge.reached.has(site));
  red.push(...(await judge.redOf(left)));
  const haul = { runs: programs.length, seed, busy: judge.busy };
  const idle = rows.map(({ site }) => site).filter((site) => !judge.reached.has(site));
  if (path === undefined && idle.length > 0) {
    const text = `no fault struck, so their rows prove nothing: ${[...new Set(idle)].join(", ")}`;
    red.push({ program: programs[0] as Program, text });
  }
  const [first] = red;
  if (first === undefined) return haul;
  const text = red.map(({ text }) => text).join("\n\n");
  return {
    ...haul,
    failure: { program: first.program, text, path: JSON.stringify(first.program) },
  };
}

interface Red {
  readonly program: Program;
  readonly text: string;
}

class Judge {
  readonly #frameworks: ReadonlyMap<string, Framework>;
  readonly #bare = new Map<string, Promise<Seen>>();
  /** The sites at which a fault has struck. */
  readonly reached = new Set<string>();
  /** Programs of which this machine was too busy to tell. */
  readonly busy: string[] = [];

  constructor(frameworks: readonly Framework[]) {
    this.#frameworks = new Map(frameworks.map((framework) => [framework.name, framework]));
  }

  /** Plays each of these programs. Resolves to one that is red for each site and way, made simple. */
  async redOf(programs: readonly Program[]): Promise<Red[]> {
    const red = new Map<string, Promise<Red>>();
    const waiting = programs.values();
    const count = counting();
    const worker = async () => {
      for (const program of waiting) {
        const text = await this.#fails(program);
        count();
        const { framework, site, way } = program;
        const kind = `${framework} ${site} ${way}`;
        if (text === undefined || red.has(kind)) continue;
        red.set(kind, this.#simple({ program, text }));
        await red.get(kind);
      }
    };
    await Promise.all(Array.from({ length: atATime }, worker));
    return await Promise.all(red.values());
  }

  /** The same fault with nothing else that is odd, as far as it is red by itself. */
  async #simple(red: Red): Promise<Red> {
    let least = red;
    for (const [name, value] of Object.entries(simplest)) {
      const program = { ...least.program, [name]: value };
      const text = await this.#fails(program);
      if (text !== undefined) least = { program, text };
    }
    return least;
  }

  async #fails(program: Program): Promise<string | undefined> {
    return await judged((pace) => this.#judge(program, pace), this.busy);
  }

  async #judge(program: Program, pace: number): Promise<string | undefined> {
    const site = sites[program.site] as Play["site"];
    const framework = this.#frameworks.get(program.framework) as Framework;
    const said = site.outcome(program.way);
    const wanted: Outcome = said === "bare" && program.after > 0 ? "any" : said;
    const how = { framework, site, program, outcome: wanted, isBare: false, pace };
    const bare = ["bare", "error", "any"].includes(wanted) ? await this.#bareOf(how) : undefined;
    const hangs = wanted === "bare" && bare?.status === "none";
    const seen = await play({ ...how, outcome: hangs ? "hangs" : wanted });
    if (seen.fault.hasStruck) this.reached.add(program.site);
    const problems = [...seen.problems, ...this.#wrong(how, seen, bare)];
    if (problems.length === 0) return undefined;
    return [JSON.stringify(program), ...problems].join("\n  ");
  }

  *#wrong({ framework, outcome, program, site }: Play, seen: Seen, bare?: Seen): Iterable<string> {
    const { fault, errors, runs, status } = seen;
    const strays = seen.strays.filter(
      ([, value]) => site.subscribes === undefined || value !== fault.value,
    );
    if (strays.length > (bare?.strays.length ?? 0)) {
      yield* strays.map(([event, value]) => `${event}: ${show(value)}`);
    }
    const mostRuns = Math.max(1, bare?.runs ?? 1);
    if (runs > mostRuns) yield `the handler ran ${runs} times`;
    if (program.leaves || status === "none" || !fault.hasStruck) return;
    if (outcome === "order" && status !== 201) yield `the client got ${status}, not its order`;
    // Express takes such values for "go on", and would run the next handler; others tell no failure by
    // them in a stream.
    const goesOn = framework.family === "express" && (!fault.value || fault.value === "route");
    const isFailure = (got: Seen["status"] | undefined) => got === "broken" || Number(got) >= 500;
    const isSame = bare?.status === status || (isFailure(bare?.status) && isFailure(status));
    if (outcome === "bare" && !isSame && fault.value instanceof Error) {
      yield `the client got ${status}, and without the guard ${bare?.status}`;
    }
    if (outcome !== "error" || bare === undefined) return;
    const expected = goesOn ? 500 : bare.status;
    if (status !== expected) yield `the client got ${status}, not ${expected}`;
    const isPassedOn = goesOn ? errors[0] instanceof Error : errors[0] === fault.value;
    const isExpected = goesOn || bare.errors.length > 0;
    if (isExpected ? errors.length !== 1 || !isPassedOn : errors.length > 0) {
      yield `the error handler got ${errors.map(show).join() || "nothing"}`;
    }
  }

  /** The same without the guard: once for what does not change it. */
  #bareOf(how: Play): Promise<Seen> {
    const program = { ...how.program, isOnce: false, leaves: false };
    const key = JSON.stringify([program, how.outcome, how.pace]);
    const known = this.#bare.get(key) ?? play({ ...how, program, isBare: true });
    this.#bare.set(key, known);
    return known;
  }
}

function show(value: unknown): string {
  if (value instanceof Error) return `${value.stack?.split("\n").slice(0, 4).join(" ")}`;
  return JSON.stringify(value) ?? "undefined";
}

await main(net);
