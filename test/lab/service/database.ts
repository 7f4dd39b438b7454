import { randomBytes } from "node:crypto";
import pg from "pg";
import { givenPostgres } from "../../support/postgres-server.ts";

/** A schema of this laboratory's own in a real PostgreSQL. */
export interface Database {
  readonly url: string;
  /** Such as `15.14`. */
  readonly version: string;
  stop(): Promise<void>;
}

/** In `DATABASE_URL`, or in a server that is started now. */
export async function openDatabase(): Promise<Database> {
  const server = await givenPostgres();
  const schema = `submit_lock_${randomBytes(6).toString("hex")}`;
  await query(server.url, `CREATE SCHEMA ${schema}`);
  const own = new URL(server.url);
  own.searchParams.set("options", `-csearch_path=${schema}`);
  return {
    url: own.href,
    version: server.version,
    async stop() {
      await query(server.url, `DROP SCHEMA ${schema} CASCADE`);
      await server.stop();
    },
  };
}

/** Runs one statement on a connection of its own. */
export async function query(
  url: string,
  sql: string,
  ...values: unknown[]
): Promise<{ readonly rows: Record<string, unknown>[]; readonly count: number }> {
  const client = new pg.Client({ connectionString: url });
  client.on("error", () => {});
  await client.connect();
  try {
    const { rowCount, rows } = await client.query(sql, values);
    return { rows, count: rowCount ?? 0 };
  } finally {
    await client.end();
  }
}
