import { randomBytes } from "node:crypto";
import { InvalidOptionError } from "../errors.ts";
import {
  anotherTransaction,
  type Dialect,
  noTransaction,
  rowsOf,
  type SqlExecutor,
  send,
  submissionsOf,
  waitedTooLong,
} from "./executor.ts";

/** Error 1305: there is no such savepoint, because the transaction that had it is over. */
const noSavepoint = 1305;

/** @param table the quoted name. */
export function mysql(table: string): Dialect {
  // INSERT IGNORE would deadlock as often, and hide other errors.
  const insert = `INSERT INTO ${table} (id, fingerprint, run, created_at) VALUES (?, ?, ?, UTC_TIMESTAMP(6)) ON DUPLICATE KEY UPDATE id = id`;
  const age = "TIMESTAMPDIFF(MICROSECOND, created_at, UTC_TIMESTAMP(6)) DIV 1000 AS age";
  const select = `SELECT fingerprint, value, run, ${age} FROM ${table} WHERE id = ?`;
  const update = `UPDATE ${table} SET value = ? WHERE id = ? AND run = ?`;
  const remove = `DELETE FROM ${table} WHERE created_at < UTC_TIMESTAMP(6) - INTERVAL ? * 1000 MICROSECOND ORDER BY created_at LIMIT ?`;
  const more = `SELECT 1 AS n FROM ${table} WHERE created_at < UTC_TIMESTAMP(6) - INTERVAL ? * 1000 MICROSECOND LIMIT 1`;
  const find = async (db: SqlExecutor, text: string, id: string) =>
    submissionsOf(await db.query(text, [id]), ["run"]);
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
      // A name for each call: an equal one would replace that of a call around this one.
      const run = randomBytes(8).toString("hex");
      await tx.query(`SAVEPOINT submit_lock_${run}`, []);
      await send(tx, `ROLLBACK TO SAVEPOINT submit_lock_${run}`, [], noSavepoint, noTransaction);
      await send(tx, insert, [id, fingerprint, run], 1205, waitedTooLong);
      // The number of affected rows is 1 for a new and for a known row with mysql2. And in
      // REPEATABLE READ only FOR UPDATE sees the row that the INSERT has met (J4).
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
