import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { serverBinary } from "../test/support/server-binary.ts";
import { startServer } from "../test/support/server-process.ts";
import type { PairJob, PairResult } from "./pair-worker.ts";
import { Child } from "./process/child.ts";
import {
  type LoadJob,
  type LoadResult,
  type ServerHello,
  type ServerJob,
  startLoad,
} from "./route/processes.ts";
import { Observer } from "./server-stats.ts";
import { quantile, table } from "./statistics.ts";

/**
 * `npm run bench:before -- <commit or folder>`: this tree against an earlier one, both built, cell by
 * cell in turns. The median of the paired ratios decides (now / before), with its quartiles.
 * `BENCH_ROUNDS` (15) and `BENCH_SECONDS` (0.5) as in the bench.
 */
const earlier = process.argv[2];
if (earlier === undefined) throw new Error("usage: npm run bench:before -- <commit or folder>");
const rounds = Number(process.env["BENCH_ROUNDS"] ?? 15);
const seconds = Number(process.env["BENCH_SECONDS"] ?? 0.5);
const trees = { before: builtAt(earlier), now: resolve(".") };
type Tree = keyof typeof trees;
const both: readonly Tree[] = ["before", "now"];

/** One thing that is measured in both trees. */
interface Cell {
  readonly name: string;
  run(tree: Tree): Promise<Record<string, number>>;
}

function builtAt(commitOrFolder: string): string {
  if (existsSync(join(commitOrFolder, "dist"))) return resolve(commitOrFolder);
  const folder = mkdtempSync(join(tmpdir(), "submit-lock-before-"));
  const run = (command: string, args: string[], cwd: string) =>
    execFileSync(command, args, { cwd, stdio: "ignore" });
  run("git", ["worktree", "add", "--detach", folder, commitOrFolder], ".");
  run("npm", ["ci"], folder);
  run("npm", ["run", "build"], folder);
  return folder;
}

function scriptIn(tree: Tree, path: string): URL {
  return pathToFileURL(join(trees[tree], path));
}

const redis = await startServer(serverBinary());
const observer = new Observer(redis.port);
const children: { stop(): Promise<void> }[] = [];

async function pairCells(): Promise<Cell[]> {
  const processes = new Map<Tree, Child<PairJob, PairResult>>();
  for (const tree of both) {
    const args = ["submit-lock", `${tree}-`, "redis", `${redis.port}`];
    const child: Child<PairJob, PairResult> = await Child.start(
      scriptIn(tree, "bench/pair-worker.ts"),
      args,
      ["--expose-gc"],
    );
    processes.set(tree, child);
    children.push(child);
  }
  const run = async (tree: Tree, callers: number, time: number) => {
    const before = await observer.stats();
    const result = await processes.get(tree)?.run({ kind: "pairs", callers, seconds: time });
    const after = await observer.stats();
    if (result === undefined) throw new Error("no result");
    return {
      "per second": result.pairsPerSecond,
      "client's processor time": result.cpuMicrosPerPair,
      "bytes to Redis": (after.bytesIn - before.bytesIn) / result.pairs,
    };
  };
  for (const tree of both) for (const callers of [1, 32, 256]) await run(tree, callers, 1);
  return [1, 32, 256].map((callers) => ({
    name: `pairs, ${callers} caller${callers === 1 ? "" : "s"}`,
    run: (tree) => run(tree, callers, seconds),
  }));
}

async function routeCells(): Promise<Cell[]> {
  const load = await startLoad();
  children.push(load);
  const cells: Cell[] = [];
  for (const [framework, variant] of [
    ["Express", "guard"],
    ["Express", "protect"],
    ["Express", "once"],
    ["Koa", "guard"],
  ] as const) {
    const key = variant === "once" ? ({ key: "new" } as const) : {};
    const servers = new Map<Tree, Child<ServerJob, number, ServerHello>>();
    for (const tree of both) {
      const child: Child<ServerJob, number, ServerHello> = await Child.start(
        scriptIn(tree, "bench/route/server.ts"),
        [framework, variant, `${redis.port}`],
      );
      children.push(child);
      servers.set(tree, child);
      await load.run({ ...jobOf(child.hello.port, 1), ...key });
    }
    cells.push({
      name: `route, ${framework}, ${variant}`,
      run: async (tree) => {
        const server = servers.get(tree);
        if (server === undefined) throw new Error("no server");
        const { port } = server.hello;
        // A process that has waited for its turn has given memory back, and takes it again first.
        await load.run({ ...jobOf(port, seconds / 2), ...key });
        await server.run({ kind: "cpu" });
        const result: LoadResult = await load.run({ ...jobOf(port, seconds), ...key });
        const cpuMs = await server.run({ kind: "cpu" });
        return {
          "per second": result.requestsPerSecond,
          p50: result.p50Ms,
          "processor time a request": cpuMs / result.requests,
        };
      },
    });
  }
  return cells;
}

function jobOf(port: number, time: number): LoadJob {
  return { port, connections: 64, seconds: time };
}

const cells = [...(await pairCells()), ...(await routeCells())];
const ratios = new Map<string, number[]>();
for (let round = 0; round < rounds; round++) {
  for (const cell of cells) {
    const order = round % 2 === 0 ? both : [...both].reverse();
    const results = new Map<Tree, Record<string, number>>();
    for (const tree of order) results.set(tree, await cell.run(tree));
    for (const [measure, now] of Object.entries(results.get("now") ?? {})) {
      const name = `${cell.name}: ${measure}`;
      const before = results.get("before")?.[measure] ?? Number.NaN;
      ratios.set(name, [...(ratios.get(name) ?? []), now / before]);
    }
  }
}
observer.close();
await Promise.all(children.map((child) => child.stop()));
await redis.stop();
const text = (value: number) => value.toFixed(3);
console.log(
  table(
    [`now / ${earlier}, ${rounds} rounds`, "median", "quartiles"],
    [...ratios].map(([name, values]) => {
      const sorted = [...values].sort((a, b) => a - b);
      const quartiles = `${text(quantile(sorted, 0.25))} to ${text(quantile(sorted, 0.75))}`;
      return [name, text(quantile(sorted, 0.5)), quartiles];
    }),
  ),
);
