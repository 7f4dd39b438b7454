import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { cpus, loadavg } from "node:os";
import { peerVersions } from "../test/lab/peers/install.ts";
import { serverVersion } from "../test/support/server-binary.ts";
import { rounds, seconds } from "./settings.ts";

const require = createRequire(import.meta.url);

const load = loadavg()[0] ?? Number.NaN;

/** What was measured on what, without the name of the machine. */
export function conditions(binary: string): string {
  const versions = [
    `Node ${process.version}`,
    serverVersion(binary),
    ...["submit-lock", "ioredis", "express", "koa"].map((name) => `${name} ${versionOf(name)}`),
    ...Object.entries(peerVersions()).map(([name, version]) => `${name} ${version}`),
  ];
  return `${cpus().length} CPUs (load ${load.toFixed(1)} before the start), ${versions.join(", ")}; Redis on loopback and without persistence, everything on the one machine. Each measurement lasts ${seconds} s and is made in ${rounds} rounds, in which everything that is compared takes turns; a number is the median of the rounds (the least–the most), and a ratio is taken within each round.`;
}

function versionOf(name: string): string {
  const file = readFileSync(require.resolve(`${name}/package.json`), "utf8");
  return (JSON.parse(file) as { version: string }).version;
}
