import { startMariadb, startMysql, startPostgres } from "../../support/sql-servers.ts";
import { rowOf, runLaboratory, seedOf, setting } from "../laboratory.ts";
import { type Played, type PlayOptions, play } from "./play.ts";

const starts = { PostgreSQL: startPostgres, MariaDB: startMariadb, MySQL: startMysql };

/** One database with a server of its own; `undefined` where there is none. */
export async function playOn(
  database: PlayOptions["database"],
  options: Omit<PlayOptions, "database" | "server">,
): Promise<Played | undefined> {
  const server = await starts[database]();
  if (server === undefined) return undefined;
  try {
    return await play({ ...options, database, server });
  } finally {
    await server.stop();
  }
}

/**
 * `npm run lab -- transaction`: 2 000 schedules on PostgreSQL and 500 on MariaDB, also on a MySQL that
 * `MYSQL_SERVER_BIN` names, and 250 and 62 of them with the other subjects. `TRANSACTION_SCHEDULES`, `TRANSACTION_SEED`, `TRANSACTION_LANES` say otherwise.
 */
export async function run(): Promise<void> {
  const seed = seedOf("TRANSACTION_SEED");
  const lanes = setting("TRANSACTION_LANES", 12);
  const most = setting("TRANSACTION_SCHEDULES", 2_000);
  await runLaboratory(`An order and its answer, TRANSACTION_SEED=${seed}`, async (redisBinary) => {
    const misses: string[] = [];
    for (const [database, times] of [
      ["PostgreSQL", 1],
      ["MariaDB", 0.25],
      ["MySQL", 0.25],
    ] as const) {
      const schedules = {
        "submissions.once": most * times,
        "the snippet of before": (most * times) / 8,
        "a plain unique key": (most * times) / 8,
      };
      const played = await playOn(database, { redisBinary, seed, lanes, schedules });
      if (played === undefined) continue;
      console.log(database);
      console.table(
        Object.fromEntries([...played.tallies].map(([subject, tally]) => [subject, rowOf(tally)])),
      );
      misses.push(...played.misses);
    }
    return misses;
  });
}
