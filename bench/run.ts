import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { cpus, loadavg } from "node:os";
import { installPeers, peerVersions } from "../test/lab/install-peers.ts";
import { serverBinary, serverVersion } from "../test/support/server-binary.ts";
import { type Findings, type Part, rounds, seconds, type Target } from "./part.ts";
import { contended } from "./parts/contended.ts";
import { memory, scale } from "./parts/held.ts";
import { nodeRedis } from "./parts/node-redis.ts";
import { observed } from "./parts/observed.ts";
import { once } from "./parts/once.ts";
import { pairs } from "./parts/pairs.ts";
import { profile } from "./parts/profile.ts";
import { route } from "./parts/route.ts";
import { acknowledgement, cluster, processes } from "./parts/several.ts";
import { watchdogs } from "./parts/watchdogs.ts";
import { table } from "./statistics.ts";

/**
 * `npm run bench`: this package beside what one could use instead, in one run. Prints tables, writes
 * them to bench/results.md and draws two pictures. With words on the command line, such as
 * `npm run bench -- pairs scale`, only those parts run and nothing is written. BENCH_SECONDS is how
 * long one measurement lasts, BENCH_ROUNDS how often everything is measured.
 *
 * A target that was missed is information and no failure: this is no test.
 */
const parts: Readonly<Record<string, Part>> = {
  pairs,
  route,
  once,
  observed,
  contended,
  scale,
  memory,
  watchdogs,
  processes,
  cluster,
  "node-redis": nodeRedis,
  profile,
  acknowledged: acknowledgement,
};

const words = process.argv.slice(2);
const unknown = words.filter((word) => !Object.hasOwn(parts, word));
if (unknown.length > 0) {
  throw new Error(
    `There is no part ${unknown.join(", ")}; there are ${Object.keys(parts).join(", ")}.`,
  );
}

const require = createRequire(import.meta.url);

installPeers("peers");
const binary = serverBinary();
const findings: Findings[] = [];
for (const [name, part] of Object.entries(parts)) {
  if (words.length > 0 && !words.includes(name)) continue;
  const start = performance.now();
  process.stderr.write(`${name} … `);
  const before = loadOfMachine();
  const found = await part(binary);
  const load = `Load of the machine: ${before} before this part, ${loadOfMachine()} behind it, its own work included.`;
  findings.push({ ...found, text: `${found.text}\n\n${load}` });
  process.stderr.write(`${Math.round((performance.now() - start) / 1_000)} s\n`);
}

const targets = findings.flatMap(({ targets }) => targets);
const report = [
  "# The bench's results",
  `Measured by \`npm run bench\` on ${conditions(binary)}`,
  ...findings.map(({ text }) => text),
  ...(targets.length === 0 ? [] : [targetTable(targets)]),
].join("\n\n");
console.log(report);
if (words.length === 0) {
  writeFileSync(new URL("./results.md", import.meta.url), `${report}\n`);
  for (const { pictures = {} } of findings) {
    for (const [name, picture] of Object.entries(pictures)) {
      writeFileSync(new URL(name, import.meta.url), picture);
    }
  }
  console.error("Written: bench/results.md, bench/pairs.svg, bench/route.svg");
}

/** How many processes ran or waited for a processor in the last minute. */
function loadOfMachine(): string {
  return (loadavg()[0] ?? Number.NaN).toFixed(1);
}

function targetTable(of: readonly Target[]): string {
  const rows = of.map(({ measure, target, measured, met, limit = "" }) => [
    measure,
    target,
    measured,
    met ? "yes" : "**no**",
    limit,
  ]);
  const head = ["measure", "target", "measured", "met?", "limit, measured in the same run"];
  return `## Targets\n\n${table(head, rows)}`;
}

/** What was measured on what, without the name of the machine. */
function conditions(binary: string): string {
  const versions = [
    `Node ${process.version}`,
    serverVersion(binary),
    ...["submit-lock", "ioredis", "express", "koa"].map((name) => `${name} ${versionOf(name)}`),
    ...Object.entries(peerVersions("peers")).map(([name, version]) => `${name} ${version}`),
  ];
  return `${cpus().length} CPUs, ${versions.join(", ")}; Redis on loopback and without persistence, everything on the one machine. Each measurement lasts ${seconds} s and is made in ${rounds} rounds, in which everything that is compared takes turns; a number is the median of the rounds (the least–the most), and a ratio is taken within each round.`;
}

function versionOf(name: string): string {
  const file = readFileSync(require.resolve(`${name}/package.json`), "utf8");
  return (JSON.parse(file) as { version: string }).version;
}
