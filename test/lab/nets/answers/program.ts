import fc from "fast-check";
import { allMain } from "../../../http/frameworks.ts";
import { type Haul, hunt, main, type Plan } from "../hunt.ts";
import { allowed, show } from "./judge.ts";
import { layersOf } from "./layers.ts";
import { open, type Program, play } from "./play.ts";
import { scriptsOf } from "./steps.ts";
import { type WhoProgram, whoFails, whoProgramsOf } from "./who.ts";

/*
 * A program: a handler and its middleware answer the same without the guard, with the lock, and with
 * "once", whose repeat is the first answer or a documented 409. Other programs ask who answers for
 * the handler (`who.ts`).
 */

export function programsOf(framework: (typeof allMain)[number]): fc.Arbitrary<Program> {
  const { family, name } = framework;
  const names = fc.constantFrom(...layersOf(family));
  const few = fc.oneof(fc.constant([]), fc.uniqueArray(names, { maxLength: 2 }));
  return fc
    .record<Program>({
      framework: fc.constant(name),
      family: fc.constant(family),
      method: fc.oneof(
        { weight: 15, arbitrary: fc.constant("POST" as const) },
        { weight: 1, arbitrary: fc.constant("HEAD" as const) },
      ),
      acceptsGzip: fc.boolean(),
      outside: few,
      // Hooks of Fastify are the application's, and Hono's middleware is around all handlers.
      inside: family === "express" || family === "koa" ? few : fc.constant([]),
      script: scriptsOf(family),
      second: fc.oneof(
        { weight: 1, arbitrary: fc.constant("meets the first" as const) },
        { weight: 1, arbitrary: fc.nat({ max: 20 }) },
      ),
    })
    .filter(({ script }) => !crashes(script));
}

/** Fastify itself throws where nothing catches it, for a trailer behind a web `Response`. */
function crashes(script: Program["script"]): boolean {
  const names = script.map(([name]) => name);
  return names.includes("trailer") && names.includes("sendResponse");
}

const usual = { method: "POST", acceptsGzip: true, inside: [] } as const;

/** Programs that the sources once answered otherwise, or whose users they left locked out. */
const known: readonly Program[] = [
  {
    ...{ ...usual, framework: "fetch, on Hono", family: "fetch" },
    outside: ["fails", "compress"],
    script: [["body", "LONG"]],
  },
  {
    ...{ ...usual, framework: "Fastify 5", family: "fastify" },
    outside: ["session", "fails"],
    script: [["sendStream", { chunks: ["placed"], as: "bytes", pause: 0, fails: -1 }]],
  },
  {
    ...{ ...usual, framework: "Fastify 5", family: "fastify" },
    outside: [],
    script: [
      ["type", "text/html"],
      ["code", 204],
      ["returnObject", "order"],
    ],
  },
  {
    ...{ ...usual, framework: "Koa 3", family: "koa" },
    outside: [],
    script: [
      ["by hand"],
      ["raw appendHeader", ["content-type", "text/plain"]],
      ["raw appendHeader", ["content-type", "text/csv"]],
    ],
  },
];

async function net(plan: Plan): Promise<Haul> {
  await open();
  const isAsked = ({ family }: { family: string }) => [undefined, family].includes(plan.family);
  const asked = allMain.filter(isAsked);
  const programs = fc.oneof(
    { weight: 6, arbitrary: fc.oneof(...asked.map(programsOf)) },
    { weight: 1, arbitrary: fc.oneof(...asked.map(whoProgramsOf)) },
  );
  return await hunt<Program | WhoProgram>(plan, programs, fails, known.filter(isAsked));
}

export async function fails(
  program: Program | WhoProgram,
  pace: number,
): Promise<string | undefined> {
  if ("who" in program) return await whoFails(program, allMain);
  const wrongs = await wrongsOf(program, pace);
  // Where a framework answers now so and now so, a second time shows whether the guard matters.
  for (let i = 0; i < 2 && wrongs.length > 0; i++) {
    const again = await wrongsOf(program, pace);
    if (again.length === 0) return undefined;
  }
  return wrongs.length === 0 ? undefined : wrongs.join("\n");
}

async function wrongsOf(program: Program, pace: number): Promise<string[]> {
  const { differing, problems } = await play(program, pace);
  return [...problems, ...differing.filter((each) => allowed(each) === undefined).map(show)];
}

await main(net);
