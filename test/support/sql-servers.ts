import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { chmodSync, chownSync, existsSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join, resolve } from "node:path";
import { atExit } from "./at-exit.ts";
import { freePort } from "./free-port.ts";
import { installOnDebian } from "./server-binary.ts";
import { until } from "./until.ts";

/** A database server of our own on 127.0.0.1, with a database `shop` that trusts everybody. */
export interface SqlServer {
  readonly url: string;
  readonly port: number;
  /** Such as `PostgreSQL 15.18`. */
  readonly version: string;
  /** Ends it, and removes its folder. */
  stop(): Promise<void>;
}

interface Kind {
  readonly name: string;
  /** The Debian package, and the service that it starts. */
  readonly debian: readonly [name: string, service: string];
  /** Folders that are looked into behind the PATH, the newest version first. */
  readonly folders: () => string[];
  readonly programs: { readonly server: string; readonly create: string };
  create(program: string, folder: string): string[];
  args(folder: string, port: number, isSafe: boolean): string[];
  readonly ready: RegExp;
  url(port: number): string;
}

const postgresql: Kind = {
  name: "PostgreSQL",
  debian: ["postgresql", "postgresql"],
  folders: () =>
    listed("/usr/lib/postgresql").map((version) => `/usr/lib/postgresql/${version}/bin`),
  programs: { server: "postgres", create: "initdb" },
  create: (initdb, folder) => [
    ...[initdb, "--no-sync", "-A", "trust", "-U", "shop", "-E", "UTF8", "--locale=C"],
    ...["-D", join(folder, "data")],
  ],
  args: (folder, port, isSafe) => [
    ...["-D", join(folder, "data"), "-p", `${port}`, "-h", "127.0.0.1", "-k", ""],
    ...["-c", "shared_buffers=32MB", "-c", "max_connections=200"],
    ...["-c", "max_prepared_transactions=0", "-c", `fsync=${isSafe ? "on" : "off"}`],
  ],
  ready: /database system is ready to accept connections/,
  url: (port) => `postgres://shop@127.0.0.1:${port}/postgres`,
};

/** What MariaDB and MySQL have in common. */
const mysqlLike = (...more: string[]): Pick<Kind, "args" | "ready" | "url"> => ({
  args: (folder, port, isSafe) => [
    ...["--no-defaults", `--datadir=${join(folder, "data")}`, "--bind-address=127.0.0.1"],
    // At its start, MariaDB removes what is called #sql in its folder: also another server's.
    `--tmpdir=${folder}`,
    ...[
      `--port=${port}`,
      `--socket=${join(folder, "socket")}`,
      `--pid-file=${join(folder, "pid")}`,
    ],
    ...["--innodb-buffer-pool-size=32M", "--max-connections=200", ...more],
    `--innodb-flush-log-at-trx-commit=${isSafe ? 1 : 0}`,
  ],
  ready: /ready for connections/,
  url: (port) => `mysql://root@127.0.0.1:${port}/shop`,
});

const mariadb: Kind = {
  ...mysqlLike("--skip-name-resolve"),
  name: "MariaDB",
  debian: ["mariadb-server", "mariadb"],
  folders: () => ["/usr/sbin", "/usr/local/sbin"],
  programs: { server: "mariadbd", create: "mariadb-install-db" },
  create: (install, folder) => [
    ...[install, "--no-defaults", `--datadir=${join(folder, "data")}`, "--skip-test-db"],
    ...["--auth-root-authentication-method=normal", "--innodb-flush-log-at-trx-commit=0"],
    `--tmpdir=${folder}`,
  ],
};

/** Debian's `mysqld` is MariaDB, so one of MySQL has to be named. */
const mysqld = process.env["MYSQL_SERVER_BIN"];
export const isMysqlNamed = Boolean(mysqld);

const mysql: Kind = {
  ...mysqlLike("--mysqlx=OFF", "--secure-file-priv=NULL"),
  name: "MySQL",
  debian: ["mysql-server", "mysql"],
  folders: () => [],
  programs: { server: mysqld ?? "mysqld", create: mysqld ?? "mysqld" },
  create: (create, folder) => [
    ...[create, "--no-defaults", "--initialize-insecure", `--datadir=${join(folder, "data")}`],
    `--tmpdir=${folder}`,
  ],
};

export interface SqlServerOptions {
  /** Waits for the disk at each commit. @defaultValue false */
  readonly isSafe?: boolean;
}

/** `undefined` where there is no PostgreSQL, and none can be installed. It says so. */
export function startPostgres(options?: SqlServerOptions): Promise<SqlServer | undefined> {
  return start(postgresql, options);
}

/** `undefined` where there is no MariaDB, and none can be installed. It says so. */
export function startMariadb(options?: SqlServerOptions): Promise<SqlServer | undefined> {
  return start(mariadb, options);
}

/** `undefined` unless `MYSQL_SERVER_BIN` names a `mysqld` of MySQL. */
export async function startMysql(options?: SqlServerOptions): Promise<SqlServer | undefined> {
  if (!mysqld) return undefined;
  // A server that somebody named and that is not there is an error.
  if (!existsSync(mysqld)) {
    throw new Error(`MYSQL_SERVER_BIN names ${mysqld}, and there is no such file.`);
  }
  return await start(mysql, options);
}

const running = new Map<ChildProcess, string>();
atExit(() => {
  for (const [child, folder] of running) {
    child.kill("SIGKILL");
    rmSync(folder, { recursive: true, force: true });
  }
});

async function start(
  kind: Kind,
  { isSafe = false }: SqlServerOptions = {},
): Promise<SqlServer | undefined> {
  let programs = find(kind);
  if (programs === undefined && installOnDebian(...kind.debian)) programs = find(kind);
  if (programs === undefined) {
    console.warn(`No ${kind.name} here: what needs one was NOT run. Install ${kind.debian[0]}.`);
    return undefined;
  }
  const { server, create } = programs;
  const version = /\d+\.\d+(\.\d+)?/.exec(
    spawnSync(server, ["--version"], { encoding: "utf8" }).stdout,
  );
  const folder = mkdtempSync(join(tmpdir(), "submit-lock-sql-"));
  const who = unprivileged();
  if (who !== undefined) chownSync(folder, who.uid, who.gid);
  chmodSync(folder, 0o700);
  const [program = "", ...args] = kind.create(create, folder);
  const made = spawnSync(program, args, { ...who, cwd: folder, encoding: "utf8" });
  if (made.status !== 0) {
    throw new Error(`${program} failed: ${made.error ?? ""}\n${made.stdout}\n${made.stderr}`);
  }
  const { child, port } = await listening(kind, server, folder, isSafe, who);
  if (kind !== postgresql) await createDatabase(port);
  return {
    url: kind.url(port),
    port,
    version: `${kind.name} ${version?.[0]}`,
    async stop() {
      const hasExited = child.exitCode !== null || child.signalCode !== null;
      const exited = hasExited ? undefined : once(child, "exit");
      // PostgreSQL waits for its clients on SIGTERM, and ends at once on SIGQUIT.
      child.kill(kind === postgresql ? "SIGQUIT" : "SIGKILL");
      await exited;
      running.delete(child);
      rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
    },
  };
}

/** Somebody else may take a free port before the server binds it, so a failed start is tried again. */
async function listening(
  kind: Kind,
  server: string,
  folder: string,
  isSafe: boolean,
  who: { uid: number; gid: number } | undefined,
): Promise<{ child: ChildProcess; port: number }> {
  for (let attempt = 1; ; attempt++) {
    const port = await freePort();
    const stdio = ["ignore", "pipe", "pipe"] as const;
    const child = spawn(server, kind.args(folder, port, isSafe), {
      ...who,
      cwd: folder,
      stdio: [...stdio],
    });
    running.set(child, folder);
    let log = "";
    const note = (chunk: Buffer) => {
      if (log.length < 100_000) log += chunk;
    };
    child.stdout?.on("data", note);
    child.stderr?.on("data", note);
    child.on("error", (error) => note(Buffer.from(String(error))));
    const isOver = () => child.exitCode !== null || child.pid === undefined;
    const what = `${kind.name} on port ${port}`;
    await until(() => kind.ready.test(log) || isOver(), { what, boundMs: 60_000 });
    if (!isOver()) return { child, port };
    running.delete(child);
    if (attempt === 5) throw new Error(`${kind.name} ended at once:\n${log}`);
  }
}

async function createDatabase(port: number): Promise<void> {
  const { createConnection } = await import("mysql2/promise");
  const connection = await createConnection({ host: "127.0.0.1", port, user: "root" });
  await connection.query("CREATE DATABASE shop CHARACTER SET utf8mb4");
  await connection.end();
}

function find(kind: Kind): { server: string; create: string } | undefined {
  const folders = [...(process.env["PATH"] ?? "").split(delimiter), ...kind.folders()];
  const pathOf = (name: string) =>
    folders.map((folder) => resolve(folder, name)).find((path) => existsSync(path));
  const server = pathOf(kind.programs.server);
  const create = pathOf(kind.programs.create);
  return server === undefined || create === undefined ? undefined : { server, create };
}

function listed(folder: string): string[] {
  if (!existsSync(folder)) return [];
  return readdirSync(folder).sort((one, other) => Number(other) - Number(one));
}

/** The servers refuse to run as root: then they run as nobody. */
function unprivileged(): { uid: number; gid: number } | undefined {
  if (process.getuid?.() !== 0) return undefined;
  const idOf = (flag: string) =>
    Number(spawnSync("id", [flag, "nobody"], { encoding: "utf8" }).stdout);
  return { uid: idOf("-u"), gid: idOf("-g") };
}
