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

/** @param table the quoted name. */
export function postgresql(table: string): Dialect {
  // PostgreSQL refuses LOCK outside of a transaction. INSERT takes this lock; ONLY spares
  // partitions.
  const prove = `LOCK TABLE ONLY ${table} IN ROW EXCLUSIVE MODE`;
  const insert = `INSERT INTO ${table} (id, fingerprint) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING RETURNING txid_current()::text AS tx`;
  // This is its own statement: READ COMMITTED then sees what the INSERT has waited for (J4).
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
        const [own] = rowsOf(inserted, ["tx"]);
        if (own !== undefined) return String(own["tx"]);
        const row = await find(tx, id);
        // There is no row where it was pruned behind the INSERT.
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
