import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { type PostgresServer, startPostgres, versionOf } from "../../support/postgres-server.ts";

const exec = promisify(execFile);

/** A schema of its own where `DATABASE_URL` says, else a server of its own. */
export async function openDatabase(): Promise<PostgresServer> {
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
  const { stdout } = await exec(psql(), [...common, ...args]);
  return stdout.split("\n").filter((line) => line !== "");
}

/** The same for a statement that gives no rows: how many it has changed. */
export async function changed(url: string, sql: string, ...values: unknown[]): Promise<number> {
  const statement = sql.replace(/;$/, "");
  const returning = /\bRETURNING\b/i.test(statement) ? statement : `${statement} RETURNING 1`;
  return (await query(url, returning, ...values)).length;
}

async function openSchema(url: string): Promise<PostgresServer> {
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

/** Debian keeps the programs of each major version in a folder of their own. */
function psql(): string {
  const versions = "/usr/lib/postgresql";
  const found = existsSync(versions) ? readdirSync(versions).sort((a, b) => +b - +a) : [];
  // It may be on the path without a server.
  return found.map((each) => join(versions, each, "bin", "psql")).find(existsSync) ?? "psql";
}
