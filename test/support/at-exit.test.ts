import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, expect, inject, test } from "vitest";
import { until } from "./until.ts";

/** Starts a server, tells its process, and is at work for longer than it is let. */
const program = `
  const { writeFileSync } = await import("node:fs");
  const { startServer } = await import(${JSON.stringify(new URL("server-process.ts", import.meta.url).href)});
  const { pid } = await startServer(${JSON.stringify(inject("redisServerBinary"))});
  process.on("SIGINT", () => process.exit());
  writeFileSync(process.env["PID_FILE"], "<" + pid + ">");
  setTimeout(() => {}, 600_000);`;

let pids: number[] = [];
let folder: string;
afterEach(() => {
  // Only of a run that failed.
  for (const pid of pids.filter(isAlive)) process.kill(pid, "SIGKILL");
  rmSync(folder, { recursive: true, force: true });
});

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

test.each<[what: string, end: (child: ChildProcess) => void, env?: NodeJS.ProcessEnv]>([
  ["a signal that it does not listen to", (child) => child.kill("SIGTERM")],
  ["a signal at which it exits", (child) => child.kill("SIGINT")],
  [
    "the end of the test runner of which it is a worker",
    (child) => child.disconnect(),
    { VITEST: "" },
  ],
])("a process that is ended by %s ends its server", async (_what, end, more) => {
  // The server keeps its files in a folder that the test knows.
  folder = mkdtempSync(join(tmpdir(), "submit-lock-at-exit-"));
  const file = join(folder, "pid");
  const own = Object.entries(process.env).filter(([name]) => !name.startsWith("VITEST"));
  const env = { ...Object.fromEntries(own), TMPDIR: folder, PID_FILE: file, ...more };
  const child = spawn(process.execPath, ["--import", "tsx", "-e", program], {
    env,
    stdio: ["ignore", "ignore", "ignore", "ipc"],
  });
  pids = [child.pid as number];
  const ended = once(child, "exit");
  // The server's process is the child's last word.
  const written = () => readdirSync(folder).includes("pid") && readFileSync(file, "utf8");
  const isAtWork = () => /<(\d+)>/.exec(written() || "")?.[1];
  pids.push(Number(await until(isAtWork, { what: "the server to be up", boundMs: 60_000 })));
  expect(pids.map(isAlive)).toEqual([true, true]);
  end(child);
  await ended;
  await until(() => !pids.some(isAlive), { what: "the processes to be gone", boundMs: 30_000 });
  const left = () => readdirSync(folder).filter((name) => name.startsWith("submit-lock-redis-"));
  await until(() => left().length === 0, { what: "the folder of the server to be gone" });
});
