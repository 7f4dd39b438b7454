import { spawnSync } from "node:child_process";
import { copyFileSync, mkdtempSync, readdirSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

/** Explores the model: spin writes a verifier, a C compiler makes `pan` of it, and `pan` searches. */
const MODEL = "submit-lock.pml";
const COMPILER = process.env["CC"] ?? "cc";
const RUN_BOUND_MS = 10 * 60_000;
const MEMORY_MB = 4_000;

/**
 * Breadth first, so that the trail is the shortest. These runs take less time than an optimising
 * compiler would.
 */
export const SHORTEST = ["-O0", "-DBFS"];

export interface Exploration {
  /** The property that does not hold, `undefined` when all of them do. */
  readonly violated: string | undefined;
  readonly depth: number;
  readonly states: number;
  readonly seconds: number;
  readonly megabytes: number;
}

/** Those of the programs that are not there. */
export function missingPrograms(): string[] {
  return [
    ["spin", "-V"],
    [COMPILER, "--version"],
  ]
    .filter(([program = "", argument = ""]) => spawnSync(program, [argument]).status !== 0)
    .map(([program = ""]) => program);
}

/** A new folder with the model in it: spin and pan read and write by that name where they run. */
export function openFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "submit-lock-model-"));
  const home = fileURLToPath(new URL(".", import.meta.url));
  for (const part of readdirSync(home).filter((name) => name.endsWith(".pml"))) {
    copyFileSync(join(home, part), join(folder, part));
  }
  return folder;
}

export function explore(
  macros: readonly string[],
  compilerFlags: readonly string[],
  folder: string,
): Exploration {
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
    violated,
    depth: numberIn(output, /depth reached (\d+)/) ?? 0,
    states: numberIn(output, /(\S+) states, stored/) ?? 0,
    seconds,
    megabytes: Math.round(numberIn(output, /(\S+)\s+total actual memory usage/) ?? 0),
  };
}

/** What happened on the trail that pan has just written. */
export function story(macros: readonly string[], folder: string): string[] {
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
