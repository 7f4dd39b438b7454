import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, describe, expect, inject, test } from "vitest";
import { until } from "./until.ts";

const laboratory = fileURLToPath(new URL("./at-exit/lab.ts", import.meta.url));
const config = fileURLToPath(new URL("./at-exit/vitest.config.ts", import.meta.url));
const vitest = fileURLToPath(new URL("../../node_modules/vitest/vitest.mjs", import.meta.url));
const signals = ["SIGTERM", "SIGINT"] as const;

let child: ChildProcess | undefined;
let pids: number[] = [];
let folder: string;
afterEach(() => {
  // Only of a run that failed.
  for (const pid of [child?.pid, ...pids]) if (pid !== undefined && isAlive(pid)) kill(pid);
  rmSync(folder, { recursive: true, force: true });
  pids = [];
});

/** Starts a process whose servers keep their files in a folder that the test knows. */
function start(args: string[]): ChildProcess {
  folder = mkdtempSync(join(tmpdir(), "submit-lock-at-exit-"));
  const own = Object.entries(process.env).filter(([name]) => !name.startsWith("VITEST"));
  const env = { ...Object.fromEntries(own), TMPDIR: folder, PIDS_FILE: join(folder, "pids") };
  child = spawn(process.execPath, args, { env, stdio: ["ignore", "pipe", "pipe"] });
  return child;
}

const pidsIn = (text: string) => [...text.matchAll(/<(\d+)>/g)].map(([, pid]) => Number(pid));

const kill = (pid: number) => process.kill(pid, "SIGKILL");

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

async function untilGone(what: string): Promise<void> {
  await until(() => !pids.some(isAlive), { what: `${what} to be gone`, boundMs: 30_000 });
  const left = () => readdirSync(folder).filter((name) => name.startsWith("submit-lock-redis-"));
  await until(() => left().length === 0, { what: "the folders of the servers to be gone" });
}

describe.each(signals)("%s", (signal) => {
  test("of a laboratory ends the servers that it has started", async () => {
    const lab = start(["--import", "tsx", laboratory, inject("redisServerBinary")]);
    let said = "";
    lab.stdout?.on("data", (chunk) => {
      said += chunk;
    });
    const ended = once(lab, "exit");
    await until(() => pidsIn(said).length === 1, { what: "the server's process" });
    pids = pidsIn(said);
    expect(pids.map(isAlive)).toEqual([true]);
    lab.kill(signal);
    expect(await ended).toEqual([null, signal]);
    await untilGone("the server");
  });

  test("of the test runner ends its server, and its workers with theirs", async () => {
    const runner = start([vitest, "run", "--config", config]);
    runner.stdout?.resume();
    runner.stderr?.resume();
    const read = () => {
      try {
        return pidsIn(readFileSync(join(folder, "pids"), "utf8"));
      } catch {
        return [];
      }
    };
    await until(() => read().length === 3, { what: "two servers and a worker", boundMs: 60_000 });
    pids = read();
    expect(pids.map(isAlive)).toEqual([true, true, true]);
    runner.kill(signal);
    await once(runner, "exit");
    await untilGone("the servers and the worker");
  });
});
