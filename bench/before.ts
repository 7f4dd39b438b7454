import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { measured, onCluster, onServer, shopCells, stopAll, tableOf } from "./cells.ts";
import type { PairSetup } from "./pairs.ts";

/**
 * `npm run bench:before -- <commit>`: this tree beside an earlier commit, both built, cell by cell in
 * turns. `BENCH_ROUNDS` (15) and `BENCH_SECONDS` as in the bench.
 */
const [commit] = process.argv.slice(2);
if (commit === undefined) throw new Error("usage: npm run bench:before -- <commit>");
const rounds = Number(process.env["BENCH_ROUNDS"] ?? 15);
const [now, before] = [resolve("."), mkdtempSync(join(tmpdir(), "submit-lock-before-"))];
const run = (command: string, args: string[], cwd = before) =>
  execFileSync(command, args, { cwd, stdio: "ignore" });
run("git", ["worktree", "add", "--detach", before, commit], now);
try {
  symlinkSync(join(now, "node_modules"), join(before, "node_modules"));
  run("npm", ["run", "build"]);
  const trees = { [commit]: before, [`${commit} again`]: before, "this tree": now };
  const shops = [
    { framework: "Express", variant: "guard" },
    { framework: "Express", variant: "protect" },
    { framework: "Express", variant: "once", key: "new" },
    { framework: "Koa", variant: "guard" },
    { framework: "Fastify", variant: "guard" },
    { framework: "Fastify", variant: "once", key: "new" },
    { framework: "fetch", variant: "guard" },
    { framework: "fetch", variant: "once", key: "new" },
  ] as const;
  const named = shops.map((shop) => [`${shop.framework}, ${shop.variant}`, shop] as const);
  const all = Object.entries(trees).flatMap(([of, tree]) =>
    named.map(([name, shop]) => [`${name}, ${of}`, { ...shop, tree, base: `${name}, ${commit}` }]),
  );
  const subjects = (client: PairSetup["client"]) =>
    Object.fromEntries(
      Object.entries(trees).map(([of, tree]) => [`${client}, ${of}`, { tree, client }]),
    );
  const tables = [
    await onServer(subjects("ioredis")),
    await onCluster(subjects("ioredis Cluster")),
    await shopCells(Object.fromEntries(all)),
  ];
  const results = await measured(tables.flat(), rounds);
  for (const cells of tables) console.log(`${tableOf(cells, results)}\n`);
} finally {
  await stopAll();
  run("git", ["worktree", "remove", "--force", before], now);
  rmSync(before, { recursive: true, force: true });
}
