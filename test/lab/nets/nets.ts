import { availableParallelism } from "node:os";
import { parseArgs } from "node:util";
import { Child } from "../../support/child.ts";
import { compiled } from "../../support/compiled.ts";
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

/** @param texts of source files, in place of what is in them. */
export async function cast(
  net: NetName,
  plan: Plan,
  texts?: ReadonlyMap<string, string>,
): Promise<Haul> {
  const program = await compiled({ file: programs[net], texts });
  return await new Child<Haul>(program, [JSON.stringify(plan)]).next(hours);
}

/** A program that was red, and how to run it again. */
export function story(net: NetName, { failure, seed }: Haul, family?: string): string {
  if (failure === undefined) return "";
  const { path, program, text } = failure;
  const only = family === undefined ? "" : ` --family ${family}`;
  return `${text}\n\n${JSON.stringify(program)}\n\nagain: npm run lab -- ${net}${only} --seed ${seed} --path ${path}`;
}

/** `npm run lab -- <net>`, with `--runs`, `--seed`, `--path`, `--family` and `--processes`. */
export async function run(net: NetName, runsByDefault: number): Promise<void> {
  const option = { type: "string" } as const;
  const options = { runs: option, seed: option, path: option, family: option, processes: option };
  const { path, family, ...given } = parseArgs({ options }).values;
  const seed = Number(given.seed ?? Math.trunc(Math.random() * 2 ** 31));
  const usual = net === "same-answer" ? 8 : availableParallelism();
  const processes = path === undefined ? Number(given.processes ?? usual) : 1;
  const runs = path === undefined ? Math.ceil(Number(given.runs ?? runsByDefault) / processes) : 1;
  const from = performance.now();
  // Hono's server replaces the `Response` of its process, in which no other framework should answer.
  const familyOf = (index: number) => (net === "same-answer" ? families[index % 4] : undefined);
  const hauls = await Promise.all(
    Array.from({ length: processes }, (_, index) => {
      const chosen = (family as Plan["family"]) ?? familyOf(index);
      return cast(net, { runs, path, seed: seed + index, family: chosen, isStrict: true });
    }),
  );
  const sum = hauls.reduce((all, haul) => all + haul.runs, 0);
  const seconds = Math.round((performance.now() - from) / 1_000);
  const seeds = hauls.map((haul) => haul.seed).join(", ");
  console.log(`${sum.toLocaleString("en")} programs in ${seconds} s, seeds ${seeds}`);
  for (const [index, haul] of hauls.entries()) {
    const only = family ?? familyOf(index);
    if (haul.failure !== undefined) console.log(`\n${story(net, haul, only)}`);
  }
  if (hauls.some(({ failure }) => failure !== undefined)) process.exitCode = 1;
}
