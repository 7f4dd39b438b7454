import { spawnSync } from "node:child_process";
import { existsSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";

const NAMES = ["redis-server", "valkey-server"];

const ADVICE = `The tests need a real Redis or Valkey server (7.0 or newer) and found none on the PATH.
  macOS           brew install redis
  Debian, Ubuntu  sudo apt-get install redis-server   (as root the tests do this by themselves)
  Windows         run the tests inside WSL
  elsewhere       REDIS_SERVER_BIN=/path/to/redis-server npm test`;

/**
 * The server that the tests start: `REDIS_SERVER_BIN`, else the first one on the PATH, else, on
 * Debian and Ubuntu as root, one that is installed now.
 */
export function serverBinary(
  env: NodeJS.ProcessEnv = process.env,
  install: () => void = installServer,
): string {
  const named = env["REDIS_SERVER_BIN"];
  // A server that somebody named and that does not work is an error: another one in its place
  // would make a run "on Valkey 9" green on something else.
  if (named) return working(named, "REDIS_SERVER_BIN");
  const found = onPath(env);
  if (found) return working(found, "the PATH");
  install();
  const installed = onPath(env);
  if (!installed) throw new Error(ADVICE);
  return working(installed, "the PATH");
}

/** What the server calls itself, such as `Redis server v=7.0.15`. */
export function serverVersion(binary: string): string | undefined {
  const { stdout } = spawnSync(binary, ["--version"], { encoding: "utf8", timeout: 10_000 });
  return /^\S+ server v=\S+/.exec(stdout ?? "")?.[0];
}

function working(binary: string, source: string): string {
  if (!isFile(binary)) {
    throw new Error(`${source} names ${binary} as the Redis server, and there is no such file.`);
  }
  if (!serverVersion(binary)) {
    throw new Error(
      `${source} names ${binary} as the Redis server, but \`${binary} --version\` does not answer like one.`,
    );
  }
  return binary;
}

function onPath(env: NodeJS.ProcessEnv): string | undefined {
  const folders = (env["PATH"] ?? "").split(delimiter).filter(Boolean);
  return NAMES.flatMap((name) => folders.map((folder) => join(folder, name))).find(isFile);
}

function isFile(path: string): boolean {
  return existsSync(path) && statSync(path).isFile();
}

function installServer(): void {
  // The package starts a service on port 6379. Nobody used it before this line, and the tests only
  // use servers of their own.
  if (!installOnDebian("redis-server", "redis-server")) throw new Error(ADVICE);
}

/** Whether a program is here that tells its version by `-V`, or could be installed now on Debian. */
export function hasProgram(name: string): boolean {
  const isHere = () => spawnSync(name, ["-V"], { timeout: 10_000 }).status === 0;
  return isHere() || (installOnDebian(name, name) && isHere());
}

/**
 * Installs a package on Debian and Ubuntu as root, and stops the service that the package starts.
 *
 * @returns whether it is installed.
 */
export function installOnDebian(name: string, service?: string): boolean {
  if (process.getuid?.() !== 0 || !existsSync("/etc/debian_version")) return false;
  const install = `apt-get update && apt-get install -y --no-install-recommends ${name}`;
  console.log(`No ${name} found. Installing it:\n  ${install}`);
  // One at a time: test files that run beside each other may need the same package.
  const lock = join(tmpdir(), "submit-lock-install.lock");
  const { status } = spawnSync("flock", [lock, "sh", "-c", install], {
    stdio: ["ignore", "inherit", "inherit"],
    env: { ...process.env, DEBIAN_FRONTEND: "noninteractive" },
    timeout: 400_000,
  });
  if (service !== undefined) {
    spawnSync("service", [service, "stop"], { stdio: "ignore", timeout: 30_000 });
  }
  return status === 0;
}
