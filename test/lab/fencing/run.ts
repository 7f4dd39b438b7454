import { fencingSql } from "../../support/fencing-sql.ts";
import { serverBinary, serverVersion } from "../../support/server-binary.ts";
import { startServer } from "../../support/server-process.ts";
import { openDatabase, query } from "./database.ts";
import { misses, type PausedResult, playAtOnce, playPaused } from "./fencing.ts";

/**
 * `npm run lab -- fencing`: a holder that was paused beyond its lease is refused by a real PostgreSQL.
 * `DATABASE_URL` names another one than the one that is started here.
 */
const binary = serverBinary();
const redis = await startServer(binary);
const database = await openDatabase();
console.log(`PostgreSQL ${database.version}, ${serverVersion(binary)}, Node ${process.version}`);
const missed: string[] = [];
try {
  await query(database.url, fencingSql.tables);
  // What has no fence.
  await query(database.url, "ALTER TABLE carts ADD COLUMN note text");
  const results: PausedResult[] = [];
  for (const recipe of ["epoch", "token"] as const) {
    results.push(await playPaused(recipe, database.url, redis.port));
  }
  console.table(results);
  missed.push(...misses(results));
  const atOnce = await playAtOnce(database.url);
  console.log(`Two transactions at once: ${JSON.stringify(atOnce)}`);
  if (!atOnce.waited) missed.push("the second transaction did not wait for the first");
  if (atOnce.rows !== 0) missed.push("the older of two transactions got through");
} finally {
  await database.stop();
  await redis.stop();
}
for (const miss of missed) console.log(`MISSED: ${miss}`);
console.log(`${missed.length} misses.`);
process.exitCode = missed.length === 0 ? 0 : 1;
