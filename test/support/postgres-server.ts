import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { chownSync, existsSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import pg from "pg";
import { atExit } from "./at-exit.ts";
import { freePort } from "./free-port.ts";
import { installOnDebian } from "./server-binary.ts";
import { until } from "./until.ts";

const ADVICE = `A real PostgreSQL is needed, and there is none here.
  Debian, Ubuntu  sudo apt-get install postgresql   (as root the command does this by itself)
  elsewhere       name one in DATABASE_URL`;

/** A PostgreSQL server of our own on 127.0.0.1. */
export interface PostgresServer {
  readonly url: string;
  /** Such as `15.14`. */
  readonly version: string;
  /** Ends it and removes its folder. */
  stop(): Promise<void>;
}

/** The one that `DATABASE_URL` names, which goes on, else a server that is started now. */
export async function givenPostgres(): Promise<PostgresServer> {
  const url = process.env["DATABASE_URL"];
  if (url === undefined || url === "") return await startPostgres();
  return { url, version: await versionOf(url), stop: async () => {} };
}

/** Starts a server; where there are no programs for it, on Debian as root, they are installed. */
async function startPostgres(): Promise<PostgresServer> {
  const bin = binaries();
  const dir = mkdtempSync(join(tmpdir(), "submit-lock-postgres-"));
  const owner = notRoot();
  if (owner !== undefined) chownSync(dir, owner.uid, owner.gid);
  const remove = () => rmSync(dir, { recursive: true, force: true });
  const initdb = ["-D", dir, "-U", "shop", "--auth=trust", "--encoding=UTF8", "--no-sync"];
  const made = spawnSync(join(bin, "initdb"), initdb, { ...owner, cwd: dir, encoding: "utf8" });
  if (made.status !== 0) {
    remove();
    throw new Error(`initdb failed:\n${made.stderr}`);
  }
  const port = await freePort();
  // Nothing of it has to outlive a power cut.
  const settings = ["fsync=off", "unix_socket_directories=", "listen_addresses=127.0.0.1"];
  const args = ["-D", dir, "-p", String(port), ...settings.flatMap((each) => ["-c", each])];
  const child = spawn(join(bin, "postgres"), args, { ...owner, cwd: dir, stdio: "ignore" });
  atExit(() => void child.kill("SIGKILL"));
  const url = `postgres://shop@127.0.0.1:${port}/postgres`;
  const version = await until(() => ready(child, url), {
    what: "a PostgreSQL server",
    boundMs: 60_000,
    everyMs: 100,
  });
  return {
    url,
    version,
    async stop() {
      const ended = once(child, "exit");
      // SIGINT: connections are ended, and then the server.
      child.kill("SIGINT");
      await ended;
      remove();
    },
  };
}

async function ready(child: ChildProcess, url: string): Promise<string | undefined> {
  if (child.exitCode !== null) throw new Error(`PostgreSQL ended with ${child.exitCode}`);
  return await versionOf(url).catch(() => undefined);
}

/** @throws what the server said, or that there is none. */
async function versionOf(url: string): Promise<string> {
  const client = new pg.Client({ connectionString: url });
  client.on("error", () => {});
  await client.connect();
  const { rows } = await client.query("SHOW server_version");
  await client.end();
  return rows[0].server_version.split(" ")[0];
}

/** The folder of `initdb` and `postgres`, which Debian keeps off the PATH. */
function binaries(): string {
  const found = () => {
    const root = "/usr/lib/postgresql";
    const versions = existsSync(root)
      ? readdirSync(root).sort((a, b) => Number(b) - Number(a))
      : [];
    const folders = [...versions.map((each) => join(root, each, "bin")), ...onPath()];
    return folders.find((each) =>
      ["initdb", "postgres"].every((name) => existsSync(join(each, name))),
    );
  };
  const there = found();
  if (there !== undefined) return there;
  const installed = installOnDebian("postgresql") ? found() : undefined;
  if (installed === undefined) throw new Error(ADVICE);
  return installed;
}

function onPath(): string[] {
  return (process.env["PATH"] ?? "").split(":").filter(Boolean);
}

/** PostgreSQL refuses to run as root. */
function notRoot(): { uid: number; gid: number } | undefined {
  if (process.getuid?.() !== 0) return undefined;
  const idOf = (flag: string) =>
    Number(spawnSync("id", [flag, "nobody"], { encoding: "utf8" }).stdout);
  return { uid: idOf("-u"), gid: idOf("-g") };
}
