import { spawnSync } from "node:child_process";
import { delimiter, dirname } from "node:path";
import { serverBinary, serverVersion } from "./support/server-binary.ts";
import { suite } from "./support/suite.ts";

/**
 * `npm run lab -- matrix`: the whole suite on every Node version and on every server named in
 * `REDIS_SERVER_BINS` (separated like a PATH), else on the one that `npm test` would use.
 * `NODE_VERSIONS=22,24` takes other Node versions, and arguments go to vitest.
 */
const NODES = (process.env["NODE_VERSIONS"] ?? "20,22,24,26").split(",");
const SERVERS = process.env["REDIS_SERVER_BINS"]?.split(delimiter).filter(Boolean);
const CELL_BOUND_MS = 20 * 60_000;

const servers = (SERVERS ?? [serverBinary()]).map((binary) =>
  serverBinary({ ...process.env, REDIS_SERVER_BIN: binary }),
);
const filters = process.argv.slice(2);

// The build is the same for every cell, and running it in each would only repeat it.
const build = spawnSync("npm", ["run", "build"], { stdio: ["ignore", "inherit", "inherit"] });
if (build.status !== 0) process.exit(1);

const programs = NODES.map((version) => ({ version, program: nodeProgram(version) }));
const rows = servers.flatMap((binary) => programs.map((node) => runCell(node, binary)));
console.table(rows);
process.exitCode = rows.every((row) => row.result === "passed") ? 0 : 1;

/** npm fetches a Node version as a package, so nothing else has to be installed. */
function nodeProgram(version: string): string {
  const args = ["-y", "-p", `node@${version}`, "-c", "node -p process.execPath"];
  const { stdout, status } = spawnSync("npx", args, { encoding: "utf8", timeout: 300_000 });
  if (status !== 0) throw new Error(`npm could not fetch Node ${version}.`);
  return stdout.trim();
}

function runCell({ version, program }: { version: string; program: string }, binary: string) {
  const server = serverVersion(binary);
  console.log(`\n=== Node ${version}, ${server}`);
  const from = performance.now();
  const { status } = spawnSync(program, [...suite, ...filters], {
    stdio: ["ignore", "inherit", "inherit"],
    env: {
      ...process.env,
      REDIS_SERVER_BIN: binary,
      // What the tests start by name, such as npm, runs on this Node too.
      PATH: `${dirname(program)}${delimiter}${process.env["PATH"]}`,
    },
    timeout: CELL_BOUND_MS,
    killSignal: "SIGKILL",
  });
  const seconds = Math.round((performance.now() - from) / 1_000);
  return { node: version, server, result: status === 0 ? "passed" : "FAILED", seconds };
}
