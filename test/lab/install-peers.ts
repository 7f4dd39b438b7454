import { spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const folder = new URL("peers/", import.meta.url);

/** Installs the other locks beside their own package file on first use. */
export function installPeers(): void {
  const names = Object.keys(peerVersions());
  if (names.every((name) => existsSync(new URL(`node_modules/${name}`, folder)))) return;
  // Their peers are clients of other servers, and there is an ioredis here.
  const args = ["ci", "--legacy-peer-deps", "--ignore-scripts", "--no-audit", "--no-fund"];
  console.log(`Installing the neighbours in test/lab/peers: npm ${args.join(" ")}`);
  const { status } = spawnSync("npm", args, {
    cwd: fileURLToPath(folder),
    stdio: ["ignore", "inherit", "inherit"],
    timeout: 300_000,
  });
  if (status !== 0) throw new Error(`npm ci in test/lab/peers failed (exit status ${status}).`);
}

/** The exact versions that are compared. */
export function peerVersions(): Record<string, string> {
  const file = readFileSync(new URL("package.json", folder), "utf8");
  return (JSON.parse(file) as { dependencies: Record<string, string> }).dependencies;
}
