import { availableParallelism } from "node:os";
import { parseArgs } from "node:util";
import { Child } from "../../support/child.ts";
import { compiled } from "../../support/compiled.ts";
import { type Played, Progress } from "../progress.ts";
import type { Haul, Plan } from "./hunt.ts";

/** Each net's program. */
const programs = {
  "linear-cost": new URL("./cost/program.ts", import.meta.url),
  "fail-anywhere": new URL("./failing/program.ts", import.meta.url),
  "same-answer": new URL("./answers/program.ts", import.meta.url),
};

export type NetName = keyof typeof programs;

export const families = ["express", "koa", "fastify", "fetch"] as const;

const hours = 10 * 3_600_000;

interface Casting {
  /** Of source files, in place of what is in them. */
  readonly texts?: ReadonlyMap<string, string>;
  /** How many programs were played so far. */
  onPlayed?(played: number): void;
}

export async function cast(
  net: NetName,
  plan: Plan,
  { onPlayed, texts }: Casting = {},
): Promise<Haul> {
  const program = await compiled({ file: programs[net], texts });
  const child = new Child<Haul | Played>(program, [JSON.stringify(plan)]);
  child.onMessage((message) => {
    if ("played" in message) onPlayed?.(message.played);
  });
  const haul = (await child.next(hours, (message) => "runs" in message)) as Haul;
  for (const text of haul.busy) console.log(`The machine is too busy for this bound: ${text}`);
  return haul;
}

/** A program that was red, and how to run it again. */
export function story(net: NetName, { failure, seed }: Haul, given: Narrowed = {}): string {
  if (failure === undefined) return "";
  const { path, program, text } = failure;
  const only = Object.entries(given).map(([name, value]) => ` --${name} "${value}"`);
  return `${text}\n\n${JSON.stringify(program)}\n\nagain: npm run lab -- ${net}${only.join("")} --seed ${seed} --path ${path}`;
}

type Narrowed = Pick<Plan, "family" | "site">;

/**
 * `npm run lab -- <net>`, with `--runs`, `--seed`, `--path`, `--family` and `--processes`; `--site`
 * is a part of the name of the foreign calls that `fail-anywhere` tries.
 */
export async function run(net: NetName, runsByDefault: number): Promise<void> {
  const option = { type: "string" } as const;
  const more = { family: option, processes: option, site: option };
  const options = { runs: option, seed: option, path: option, ...more };
  const { path, family, site, ...given } = parseArgs({ options }).values;
  const seed = Number(given.seed ?? Math.trunc(Math.random() * 2 ** 31));
  const usual = net === "same-answer" ? 8 : availableParallelism();
  const processes = path === undefined ? Number(given.processes ?? usual) : 1;
  const runs = path === undefined ? Math.ceil(Number(given.runs ?? runsByDefault) / processes) : 1;
  const from = performance.now();
  // Hono's server replaces the `Response` of its process, in which no other framework should answer.
  const familyOf = (index: number) => (net === "same-answer" ? families[index % 4] : undefined);
  const narrowed = (index: number): Narrowed => {
    const chosen = (family as Plan["family"]) ?? familyOf(index);
    return { ...(chosen && { family: chosen }), ...(site !== undefined && { site }) };
  };
  const progress = new Progress(runs * processes, "programs");
  const hauls = await Promise.all(
    Array.from({ length: processes }, (_, index) => {
      const plan = { runs, path, seed: seed + index, isStrict: true, ...narrowed(index) };
      return cast(net, plan, { onPlayed: progress.at(index) });
    }),
  ).finally(() => progress.stop());
  const sum = hauls.reduce((all, haul) => all + haul.runs, 0);
  const seconds = Math.round((performance.now() - from) / 1_000);
  const seeds = hauls.map((haul) => haul.seed).join(", ");
  console.log(`${sum.toLocaleString("en")} programs in ${seconds} s, seeds ${seeds}`);
  for (const [index, haul] of hauls.entries()) {
    if (haul.failure !== undefined) console.log(`\n${story(net, haul, narrowed(index))}`);
  }
  if (hauls.some(({ failure }) => failure !== undefined)) process.exitCode = 1;
}
