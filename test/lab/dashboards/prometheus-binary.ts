import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";

const INSTALL = "apt-get update && apt-get install -y --no-install-recommends prometheus";

const ADVICE = `\`npm run lab -- dashboards\` needs prometheus and promtool on the PATH (2.42 or newer) and found none.
  macOS           brew install prometheus
  Debian, Ubuntu  sudo apt-get install prometheus   (as root this command does it by itself)`;

/** Makes sure that `prometheus` and `promtool` are on the PATH; on Debian and Ubuntu as root it installs them. */
export function requirePrometheus(): void {
  if (isThere()) return;
  const debianAsRoot = process.getuid?.() === 0 && existsSync("/etc/debian_version");
  if (!debianAsRoot) throw new Error(ADVICE);
  console.log(`No Prometheus found. Installing one:\n  ${INSTALL}`);
  const { status } = spawnSync("sh", ["-c", INSTALL], {
    stdio: ["ignore", "inherit", "inherit"],
    env: { ...process.env, DEBIAN_FRONTEND: "noninteractive" },
    timeout: 240_000,
  });
  // The package may start a service on port 9090, which nobody used before this line.
  spawnSync("service", ["prometheus", "stop"], { stdio: "ignore", timeout: 30_000 });
  if (status !== 0 || !isThere()) {
    throw new Error(`The installation failed (exit status ${status}).\n${ADVICE}`);
  }
}

function isThere(): boolean {
  return ["prometheus", "promtool"].every(
    (name) => spawnSync(name, ["--version"], { stdio: "ignore", timeout: 10_000 }).status === 0,
  );
}
