import { randomBytes } from "node:crypto";
import { InvalidOptionError } from "../errors.ts";
import {
  anotherTransaction,
  type Dialect,
  noTransaction,
  probe,
  rowsOf,
  type SqlExecutor,
  send,
  submissionsOf,
  textsOf,
  waitedTooLong,
} from "./executor.ts";

/** Makes the statements for PostgreSQL. @param table the quoted name. */
export function postgresql(table: string): Dialect {
  // J2: PostgreSQL refuses LOCK outside of a transaction. The INSERT takes the same lock anyway,
  // and ONLY leaves the table's partitions unlocked.
  const prove = `LOCK TABLE ONLY ${table} IN ROW EXCLUSIVE MODE`;
  const insert = `INSERT INTO ${table} (id, fingerprint) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING RETURNING txid_current()::text AS tx, ${probe}`;
  // A separate statement: READ COMMITTED then sees the row for which the INSERT has waited (J4).
  const select = `SELECT fingerprint, value, floor(extract(epoch FROM clock_timestamp() - created_at) * 1000)::text AS age FROM ${table} WHERE id = $1`;
  const update = `UPDATE ${table} SET value = $1 WHERE id = $2 AND txid_current()::text = $3 RETURNING id`;
  const remove = `WITH old AS (SELECT id FROM ${table} WHERE created_at < now() - $1::float8 * interval '1 millisecond' ORDER BY created_at LIMIT $2::int FOR UPDATE SKIP LOCKED), gone AS (DELETE FROM ${table} WHERE id IN (SELECT id FROM old) RETURNING 1) SELECT count(*)::int AS n FROM gone`;
  const find = async (db: SqlExecutor, id: string) =>
    submissionsOf(await db.query(select, [id]))[0];
  return {
    ddl: `CREATE TABLE ${table} (
  id text COLLATE "C" PRIMARY KEY,
  fingerprint text COLLATE "C",
  value text,
  created_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX ON ${table} (created_at);
`,
    async begin(tx, id, fingerprint) {
      await send(tx, prove, [], "25P01", noTransaction);
      for (let round = 1; round <= 3; round++) {
        const inserted = await send(tx, insert, [id, fingerprint], "55P03", waitedTooLong);
        const [own] = textsOf(inserted, ["tx", "probe"]);
        if (own !== undefined) return String(own["tx"]);
        const row = await find(tx, id);
        // Without a row, insert again: the row that this INSERT has met was pruned since.
        if (row !== undefined) return row;
      }
      throw waitedTooLong();
    },
    async end(tx, id, token, json) {
      const [own] = rowsOf(await tx.query(update, [json, id, token]), ["id"]);
      if (own === undefined) throw anotherTransaction();
    },
    find,
    async prune(db, olderThanMs, batchSize) {
      const [{ n } = { n: 0 }] = rowsOf(await db.query(remove, [olderThanMs, batchSize]), ["n"]);
      return Number(n) === batchSize;
    },
  };
}

/** Error 1305, no such savepoint: its transaction is over, or there was no transaction. */
const noSavepoint = 1305;

/** Makes the statements for MySQL and MariaDB. @param table the quoted name. */
export function mysql(table: string): Dialect {
  // INSERT IGNORE would deadlock as often as this statement, and hide other errors.
  const insert = `INSERT INTO ${table} (id, fingerprint, run, created_at) VALUES (?, ?, ?, UTC_TIMESTAMP(6)) ON DUPLICATE KEY UPDATE id = id`;
  const age = "TIMESTAMPDIFF(MICROSECOND, created_at, UTC_TIMESTAMP(6)) DIV 1000 AS age";
  const select = `SELECT fingerprint, value, run, ${age}, ${probe} FROM ${table} WHERE id = ?`;
  const update = `UPDATE ${table} SET value = ? WHERE id = ? AND run = ?`;
  const isOld = "created_at < UTC_TIMESTAMP(6) - INTERVAL ? * 1000 MICROSECOND";
  // J13: a plain DELETE waits for orders under way, and other orders for it. `id IN (SELECT …)` does,
  // too: only this join, in this order, locks no more rows than the derived table. The table has no
  // alias, which the server would look for in the connection's own database.
  const old = `SELECT id FROM ${table} WHERE ${isOld} ORDER BY created_at LIMIT ? FOR UPDATE SKIP LOCKED`;
  const remove = `DELETE ${table} FROM (${old}) AS submit_lock_old STRAIGHT_JOIN ${table} ON ${table}.id = submit_lock_old.id`;
  const more = `SELECT 1 AS n FROM ${table} WHERE ${isOld} LIMIT 1 FOR UPDATE SKIP LOCKED`;
  const find = async (db: SqlExecutor, text: string, id: string) =>
    submissionsOf(await db.query(text, [id]), ["run", "probe"]);
  return {
    ddl: `CREATE TABLE ${table} (
  id char(22) CHARACTER SET ascii COLLATE ascii_bin PRIMARY KEY,
  fingerprint char(22) CHARACTER SET ascii COLLATE ascii_bin,
  run char(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  value mediumtext CHARACTER SET utf8mb4,
  created_at datetime(6) NOT NULL,
  KEY (created_at)
) ENGINE=InnoDB;
`,
    async begin(tx, id, fingerprint) {
      // Each call has a name of its own: an equal name would replace an outer call's savepoint.
      const run = randomBytes(8).toString("hex");
      await tx.query(`SAVEPOINT submit_lock_${run}`, []);
      // Not ROLLBACK TO: it would undo what the application has sent at the same time.
      await send(tx, `RELEASE SAVEPOINT submit_lock_${run}`, [], noSavepoint, noTransaction);
      await tx.query(`SAVEPOINT submit_lock_${run}`, []);
      await send(tx, insert, [id, fingerprint, run], 1205, waitedTooLong);
      // Read the row to see whose it is: mysql2 reports 1 affected row for known rows, too.
      // In REPEATABLE READ only FOR UPDATE sees the row that the INSERT has met (J4).
      const rows = await find(tx, `${select} FOR UPDATE`, id);
      const [row] = rows;
      if (row === undefined || rows.length > 1) {
        throw new InvalidOptionError(
          `table: expected one row of a submission, got ${rows.length}. Create the table as ddl has it, with its primary key and ENGINE=InnoDB`,
        );
      }
      return row.run === run ? run : row;
    },
    async end(tx, id, token, json) {
      await tx.query(update, [json, id, token]);
      const release = `RELEASE SAVEPOINT submit_lock_${token}`;
      await send(tx, release, [], noSavepoint, anotherTransaction);
    },
    find: async (db, id) => (await find(db, select, id))[0],
    async prune(db, olderThanMs, batchSize) {
      await db.query(remove, [olderThanMs, batchSize]);
      return rowsOf(await db.query(more, [olderThanMs]), ["n"]).length > 0;
    },
  };
}
