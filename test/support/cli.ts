import { execFile } from "node:child_process";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, onTestFinished } from "vitest";
import { main } from "../../src/cli/main.ts";
import { plain, type Terminal } from "../../src/cli/terminal.ts";
import type { Ended } from "./child.ts";

/** The program as it is published: `npm run build` makes it. */
export const bin: string = fileURLToPath(new URL("../../dist/esm/cli/index.js", import.meta.url));

/** Runs the program in a process of its own, without a terminal and with nothing to read; at most 120 s. */
export function runProgram(
  args: readonly string[],
  env: Record<string, string> = {},
): Promise<Ended> {
  if (!existsSync(bin)) throw new Error("There is no build: run `npm run build` first.");
  const options = { env: { ...process.env, ...env }, timeout: 120_000 };
  return new Promise((resolve) => {
    const child = execFile(process.execPath, [bin, ...args], options, (error, stdout, stderr) => {
      resolve({ code: error === null ? 0 : Number(error.code ?? -1), stdout, stderr });
    });
    child.stdin?.end();
  });
}

/**
 * Writes a shop's module for `--config`, which finds its packages from here, for as long as the test
 * runs.
 */
export function configModule(code: string): string {
  const folder = mkdtempSync(join(tmpdir(), "submit-lock-config-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const file = join(folder, "lock.mjs");
  const ioredis = JSON.stringify(import.meta.resolve("ioredis"));
  const dist = JSON.stringify(new URL("../../dist/esm/index.js", import.meta.url).href);
  const head = `import { Redis } from ${ioredis};\nimport { RedisStore, SubmitLock } from ${dist};\n`;
  writeFileSync(file, head + code);
  return file;
}

/** Runs a command in this process, as one that has no terminal. A process of its own costs 0.2 s. */
export async function runMain(
  args: readonly string[],
  env: Record<string, string> = {},
): Promise<Ended> {
  const { questions, ...ended } = await run(args, env, undefined);
  return ended;
}

/** Each with its least arguments. */
export const everyCommand: readonly (readonly string[])[] = [
  ["show", "42"],
  ["free", "42", "--id", "356a192b", "--reason", "x"],
  ["list"],
  ["watch", "42", "--for", "1ms"],
  ["answers", "42"],
  ["forget", "42", "a".repeat(22), "--reason", "x"],
  ["doctor"],
];

/** Runs every command, all at the same time: most of it is waiting. */
export async function runEvery(url: string, more: readonly string[] = []): Promise<Ended[]> {
  const env = { REDIS_URL: url };
  return await Promise.all(everyCommand.map((args) => runMain([...args, ...more], env)));
}

/** A command that failed has printed nothing, and says this. */
export function expectFailure(ended: Ended, code: number, ...said: (string | RegExp)[]): void {
  expect(ended, ended.stderr).toMatchObject({ code, stdout: "" });
  for (const each of said) expect(ended.stderr).toMatch(each);
}

/** Runs a command in this process, as a person at a terminal who answers the questions in order. */
export async function runAsPerson(
  args: readonly string[],
  env: Record<string, string>,
  answers: readonly (string | undefined)[],
): Promise<Ended & { readonly questions: readonly string[] }> {
  return await run(args, env, answers);
}

async function run(
  args: readonly string[],
  env: Record<string, string>,
  answers: readonly (string | undefined)[] | undefined,
): Promise<Ended & { readonly questions: readonly string[] }> {
  const out: string[] = [];
  const err: string[] = [];
  const questions: string[] = [];
  const terminal: Terminal = {
    env,
    canAsk: answers !== undefined,
    paint: plain,
    print: (lines) => void out.push(...lines.map((line) => `${line}\n`)),
    warn: (lines) => void err.push(...lines.map((line) => `${line}\n`)),
    progress: () => {},
    ask: async (question) => answers?.[questions.push(question) - 1],
  };
  const code = await main(args, terminal);
  return { code, stdout: out.join(""), stderr: err.join(""), questions };
}

/** What `free` writes on its last line of stderr. */
export function auditOf(stderr: string): Record<string, unknown> {
  return JSON.parse(stderr.trim().split("\n").at(-1) ?? "");
}
