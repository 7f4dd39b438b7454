import { afterAll, describe, expect, test } from "vitest";
import { isMysqlNamed, startMariadb, startMysql, startPostgres } from "../support/sql-servers.ts";
import { type Database, openMysql, openPostgres } from "./databases.ts";

/**
 * Describes what holds on each database: a server of this file's own, started before anything is
 * described. Where there is none, a skipped test says so.
 */
export async function onEachDatabase(tests: (db: Database) => void): Promise<void> {
  const starts = [
    { name: "PostgreSQL", start: startPostgres, open: openPostgres },
    { name: "MariaDB", start: startMariadb, open: openMysql },
    ...(isMysqlNamed ? [{ name: "MySQL", start: startMysql, open: openMysql }] : []),
  ];
  const started = await Promise.all(
    starts.map(async ({ name, start, open }) => {
      const server = await start();
      if (server === undefined) return { name, stop: async () => {} };
      const db = await open(server);
      const stop = async () => {
        await db.close();
        await server.stop();
      };
      return { name: server.version, db, stop };
    }),
  );
  for (const { name, db, stop } of started) {
    test(`there is a real ${name} here, or this says that nothing was tried with it`, ({
      skip,
    }) => {
      skip(db === undefined, `no ${name} on this machine, and none could be installed`);
      expect(db).toBeDefined();
    });
    if (db !== undefined) describe(`on ${name}`, () => tests(db));
    afterAll(stop);
  }
}
