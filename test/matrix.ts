import { spawnSync } from "node:child_process";
import { delimiter } from "node:path";
import { serverBinary, serverVersion } from "./support/server-binary.ts";

/**
 * `npm run test:matrix`: the whole suite on every Node version and on every server named in
 * `REDIS_SERVER_BINS` (separated like a PATH), else on the one that `npm test` would use.
 * `NODE_VERSIONS=22,24` takes other Node versions, and arguments go to vitest.
 */
const NODES = (process.env["NODE_VERSIONS"] ?? "20,22,24,26").split(",");
const SERVERS = process.env["REDIS_SERVER_BINS"]?.split(delimiter).filter(Boolean);
const CELL_BOUND_MS = 20 * 60_000;

const servers = (SERVERS ?? [serverBinary()]).map((binary) =>
  serverBinary({ ...process.env, REDIS_SERVER_BIN: binary }),
);
const filters = process.argv.slice(2).map((filter) => `'${filter.replaceAll("'", "'\\''")}'`);

// The build is the same for every cell, and running it in each would only repeat it.
must("npm", ["run", "build"]);

const rows = servers.flatMap((binary) => NODES.map((node) => runCell(node, binary)));
console.table(rows);
process.exitCode = rows.every((row) => row.result === "passed") ? 0 : 1;

function runCell(node: string, binary: string) {
  const server = serverVersion(binary);
  console.log(`\n=== Node ${node}, ${server}`);
  const vitest = ["npx vitest run --config test/vitest.config.ts", ...filters].join(" ");
  const from = performance.now();
  // npm fetches the Node version as a package, so nothing else has to be installed.
  const { status } = spawnSync("npx", ["-y", "-p", `node@${node}`, "-c", vitest], {
    stdio: ["ignore", "inherit", "inherit"],
    env: { ...process.env, REDIS_SERVER_BIN: binary },
    timeout: CELL_BOUND_MS,
    killSignal: "SIGKILL",
  });
  const seconds = Math.round((performance.now() - from) / 1_000);
  return { node, server, result: status === 0 ? "passed" : "FAILED", seconds };
}

function must(program: string, args: string[]): void {
  const { status } = spawnSync(program, args, { stdio: ["ignore", "inherit", "inherit"] });
  if (status !== 0) process.exit(status ?? 1);
}
