import { randomUUID } from "node:crypto";
import pg from "pg";
import { afterAll } from "vitest";
import { startPostgres } from "../../support/sql-servers.ts";

let starting: ReturnType<typeof startPostgres> | undefined;
afterAll(async () => await (await starting)?.stop());

/**
 * What tells an example of an empty database of its own. To make one in its process takes it 800 MB
 * and ten seconds of a processor; it does so where there is no PostgreSQL.
 */
export async function ownDatabase(): Promise<{ DATABASE_URL?: string }> {
  starting ??= startPostgres();
  const postgres = await starting;
  if (postgres === undefined) return {};
  const name = `shop_${randomUUID().slice(0, 8)}`;
  const client = new pg.Client({ connectionString: postgres.url });
  await client.connect();
  await client.query(`CREATE DATABASE ${name}`);
  await client.end();
  const url = new URL(postgres.url);
  url.pathname = name;
  return { DATABASE_URL: url.href };
}
