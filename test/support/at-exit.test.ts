import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, expect, inject, test } from "vitest";
import { until } from "./until.ts";

const config = fileURLToPath(new URL("./at-exit/vitest.config.ts", import.meta.url));
const vitest = fileURLToPath(new URL("../../node_modules/vitest/vitest.mjs", import.meta.url));

/** A laboratory that starts a server, tells its process, and is at work for longer than it is let. */
const laboratory = `
  const { writeFileSync } = await import("node:fs");
  const { startServer } = await import(${JSON.stringify(new URL("server-process.ts", import.meta.url).href)});
  const { pid } = await startServer(${JSON.stringify(inject("redisServerBinary"))});
  writeFileSync(process.env["PIDS_FILE"], "<" + pid + ">");
  setTimeout(() => {}, 600_000);`;

let child: ChildProcess | undefined;
let pids: number[] = [];
let folder: string;
afterEach(() => {
  // Only of a run that failed.
  for (const pid of [child?.pid, ...pids]) {
    if (pid !== undefined && isAlive(pid)) process.kill(pid, "SIGKILL");
  }
  rmSync(folder, { recursive: true, force: true });
  pids = [];
});

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

/** The processes that the child has written down, which is its last word. */
function written(): number[] {
  const name = join(folder, "pids");
  const text = readdirSync(folder).includes("pids") ? readFileSync(name, "utf8") : "";
  return [...text.matchAll(/<(\d+)>/g)].map(([, pid]) => Number(pid));
}

test.each([
  ["SIGTERM of a laboratory", "its server", 1, "SIGTERM", ["--import", "tsx", "-e", laboratory]],
  [
    "SIGINT of the test runner",
    "its server, and its workers with theirs",
    3,
    "SIGINT",
    [vitest, "run", "--config", config],
  ],
] as const)("%s ends %s", async (_what, _whom, processes, signal, args) => {
  // The servers keep their files in a folder that the test knows.
  folder = mkdtempSync(join(tmpdir(), "submit-lock-at-exit-"));
  const own = Object.entries(process.env).filter(([name]) => !name.startsWith("VITEST"));
  const env = { ...Object.fromEntries(own), TMPDIR: folder, PIDS_FILE: join(folder, "pids") };
  child = spawn(process.execPath, args, { env, stdio: "ignore" });
  const ended = once(child, "exit");
  const isAtWork = () => written().length === processes;
  await until(isAtWork, { what: "the processes to be at work", boundMs: 60_000 });
  pids = written();
  expect(new Set(pids.map(isAlive))).toEqual(new Set([true]));
  child.kill(signal);
  await ended;
  await until(() => !pids.some(isAlive), { what: "the processes to be gone", boundMs: 30_000 });
  const left = () => readdirSync(folder).filter((name) => name.startsWith("submit-lock-redis-"));
  await until(() => left().length === 0, { what: "the folders of the servers to be gone" });
});
