import { type ChildProcess, execFile, execFileSync, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { chownSync, existsSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { freePort } from "../../support/free-port.ts";
import { until } from "../../support/until.ts";

const exec = promisify(execFile);

/** A database of this laboratory's own. */
export interface Database {
  /** What `psql` is to connect to. */
  readonly url: string;
  readonly version: string;
  stop(): Promise<void>;
}

/** A schema of its own where `DATABASE_URL` says, or Debian's PostgreSQL on loopback and a free port. */
export async function openDatabase(): Promise<Database> {
  const given = process.env["DATABASE_URL"];
  return given === undefined ? await startPostgres() : await openSchema(given);
}

/**
 * Runs one statement with values and gives its rows, each a line.
 *
 * @throws what PostgreSQL said.
 */
export async function query(url: string, sql: string, ...values: unknown[]): Promise<string[]> {
  const literals = values.map((value) => `'${String(value).replaceAll("'", "''")}'`);
  const args =
    values.length === 0
      ? ["-c", sql]
      : ["-c", `PREPARE given AS ${sql}`, "-c", `EXECUTE given (${literals.join(", ")})`];
  const common = ["-d", url, "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"];
  const { stdout } = await exec(programOf("psql"), [...common, ...args]);
  return stdout.split("\n").filter((line) => line !== "");
}

/** The same for a statement that gives no rows: how many it has changed. */
export async function changed(url: string, sql: string, ...values: unknown[]): Promise<number> {
  const statement = sql.replace(/;$/, "");
  const returning = /\bRETURNING\b/i.test(statement) ? statement : `${statement} RETURNING 1`;
  return (await query(url, returning, ...values)).length;
}

async function openSchema(url: string): Promise<Database> {
  const schema = `submit_lock_${randomBytes(6).toString("hex")}`;
  await query(url, `CREATE SCHEMA ${schema}`);
  const own = new URL(url);
  own.searchParams.set("options", `-csearch_path=${schema}`);
  return {
    url: own.href,
    version: await versionOf(url),
    stop: async () => {
      await query(url, `DROP SCHEMA ${schema} CASCADE`);
    },
  };
}

async function startPostgres(): Promise<Database> {
  const dir = mkdtempSync(join(tmpdir(), "submit-lock-postgres-"));
  const remove = () => rmSync(dir, { recursive: true, force: true });
  const user = unprivileged();
  if (user.uid !== undefined && user.gid !== undefined) chownSync(dir, user.uid, user.gid);
  const options = { ...user, cwd: dir };
  const init = ["-D", join(dir, "data"), "-A", "trust", "-U", "shop", "-N", "-E", "UTF8"];
  await exec(programOf("initdb"), init, options);
  const port = await freePort();
  const place = ["-D", join(dir, "data"), "-h", "127.0.0.1", "-p", `${port}`, "-k", dir];
  const child = spawn(programOf("postgres"), place, { ...options, stdio: "ignore" });
  const end = () => void child.kill("SIGQUIT");
  process.once("exit", end);
  const url = `postgres://shop@127.0.0.1:${port}/postgres`;
  await until(() => answers(child, url), { what: "PostgreSQL", boundMs: 60_000, everyMs: 100 });
  return {
    url,
    version: await versionOf(url),
    async stop() {
      process.off("exit", end);
      const exited = once(child, "exit");
      child.kill("SIGINT");
      await exited;
      remove();
    },
  };
}

async function answers(child: ChildProcess, url: string): Promise<boolean> {
  if (child.exitCode !== null) throw new Error(`PostgreSQL ended at once with ${child.exitCode}.`);
  return await query(url, "SELECT 1").then(
    () => true,
    () => false,
  );
}

async function versionOf(url: string): Promise<string> {
  return (await query(url, "SHOW server_version"))[0] ?? "?";
}

/** PostgreSQL refuses to run as root. */
function unprivileged(): { uid?: number; gid?: number } {
  if (process.getuid?.() !== 0) return {};
  const id = (option: string) => Number(execFileSync("id", [option, "nobody"]).toString());
  return { uid: id("-u"), gid: id("-g") };
}

/** Debian keeps the programs of each major version in a folder of their own. */
function programOf(name: string): string {
  const versions = "/usr/lib/postgresql";
  const found = existsSync(versions) ? readdirSync(versions).sort((a, b) => +b - +a) : [];
  const program = found.map((each) => join(versions, each, "bin", name)).find(existsSync);
  if (program !== undefined) return program;
  // psql may be on the path without a server.
  if (name === "psql") return name;
  throw new Error(
    "There is no PostgreSQL: apt-get install postgresql, or name one in DATABASE_URL.",
  );
}
