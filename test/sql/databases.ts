import { randomUUID } from "node:crypto";
import { createConnection, createPool } from "mysql2/promise";
import pg from "pg";
import { identify, isRetryable, type SqlExecutor, SubmissionTable } from "../../src/sql/index.ts";
import type { SqlServer } from "../support/sql-servers.ts";

export const isolations = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] as const;
export type Isolation = (typeof isolations)[number];

/** A connection with an open transaction. */
export interface Session extends SqlExecutor {
  commit(): Promise<void>;
  rollback(): Promise<void>;
  /** Sends COMMIT, and never hears of it. */
  commitUnheard(): void;
  /** The connection breaks. */
  die(): void;
  close(): Promise<void>;
}

interface Native {
  readonly executors: Readonly<Record<string, SqlExecutor>>;
  readonly prepared?: SqlExecutor;
  /** Its rows are arrays. */
  readonly asArrays: SqlExecutor;
  end(how: "COMMIT" | "ROLLBACK"): Promise<void>;
}

/** What a shop's transaction has written beside the submission's row. */
export interface Ledger {
  readonly orders: number;
  readonly stock: number;
  readonly outbox: number;
}

/** Exactly one order with all that belongs to it. */
export const oneOrder: Ledger = { orders: 1, stock: -1, outbox: 1 };
export const noOrder: Ledger = { orders: 0, stock: 0, outbox: 0 };

/** A database with the table of submissions and a shop, whose tables have no unique key. */
export interface Database {
  readonly dialect: "postgresql" | "mysql";
  /** MySQL prepares no SAVEPOINT. MariaDB does. */
  readonly refusesPrepared?: boolean;
  /** MariaDB has innodb_snapshot_isolation, from 11.6 on by default. */
  readonly isolatesSnapshots?: boolean;
  readonly table: SubmissionTable;
  readonly pool: SqlExecutor;
  begin(isolation?: Isolation): Promise<Session>;
  /** What an application gets of its driver, as it is, with a transaction that it has begun. */
  native(): Promise<Native>;
  /** Runs statements that have no parameters, one after the other. */
  run(...statements: string[]): Promise<Record<string, unknown>[]>;
  close(): Promise<void>;
}

const shop = [
  "CREATE TABLE orders (number bigint, item varchar(40) NOT NULL)",
  "CREATE TABLE stock (item varchar(40) PRIMARY KEY, changed int NOT NULL)",
  "CREATE TABLE outbox (item varchar(40) NOT NULL)",
];

export async function openPostgres(server: SqlServer): Promise<Database> {
  const pool = new pg.Pool({ connectionString: server.url, max: 4 });
  pool.on("error", () => {});
  const table = new SubmissionTable();
  const run = async (...statements: string[]) => {
    let rows: Record<string, unknown>[] = [];
    for (const statement of statements) rows = (await pool.query(statement)).rows;
    return rows;
  };
  await run(...shop, table.ddl);
  return {
    dialect: "postgresql",
    table,
    pool,
    run,
    async begin(isolation = "READ COMMITTED") {
      const client = new pg.Client({ connectionString: server.url });
      client.on("error", () => {});
      await client.connect();
      await client.query(`BEGIN ISOLATION LEVEL ${isolation}`);
      const { stream } = (client as unknown as { connection: { stream: { destroy(): void } } })
        .connection;
      const close = () => client.end().catch(() => {});
      return {
        query: (text, params) => client.query(text, params),
        commit: async () => void (await client.query("COMMIT")),
        rollback: async () => void (await client.query("ROLLBACK")),
        commitUnheard: () => void client.query("COMMIT").catch(() => {}),
        die: () => stream.destroy(),
        close,
      };
    },
    async native() {
      const client = await pool.connect();
      await client.query("BEGIN");
      return {
        executors: { "PoolClient of pg": client },
        asArrays: {
          query: (text, values) => client.query({ text, values, rowMode: "array" }),
        },
        async end(how) {
          await client.query(how);
          client.release();
        },
      };
    },
    close: () => pool.end(),
  };
}

/** MariaDB, or MySQL. */
export async function openMysql(server: SqlServer): Promise<Database> {
  const pool = createPool({ uri: server.url, connectionLimit: 4 });
  const refusesPrepared = server.version.startsWith("MySQL");
  const table = new SubmissionTable({ dialect: "mysql" });
  const run = async (...statements: string[]) => {
    let rows: unknown;
    for (const statement of statements) [rows] = await pool.query(statement);
    return rows as Record<string, unknown>[];
  };
  await run(...shop, table.ddl);
  const isolation = await run("SHOW VARIABLES LIKE 'innodb_snapshot_isolation'");
  return {
    dialect: "mysql",
    refusesPrepared,
    isolatesSnapshots: isolation.length === 1,
    table,
    pool,
    run,
    async begin(isolation = "REPEATABLE READ") {
      const connection = await createConnection(server.url);
      connection.on("error", () => {});
      await connection.query(`SET SESSION TRANSACTION ISOLATION LEVEL ${isolation}`);
      await connection.query("START TRANSACTION");
      return {
        query: (text, params) => connection.query(text, params),
        commit: () => connection.commit(),
        rollback: () => connection.rollback(),
        commitUnheard: () => void connection.query("COMMIT").catch(() => {}),
        die: () => connection.destroy(),
        close: () => connection.end().catch(() => {}),
      };
    },
    async native() {
      const connection = await pool.getConnection();
      await connection.beginTransaction();
      const prepared: SqlExecutor = {
        query: (text, params) => connection.execute(text, params as string[]),
      };
      return {
        executors: {
          "connection of mysql2": connection,
          ...(!refusesPrepared && { "prepared statements of mysql2": prepared }),
        },
        prepared,
        asArrays: {
          query: (sql, values) => connection.query({ sql, values, rowsAsArray: true }),
        },
        async end(how) {
          await connection.query(how);
          connection.release();
        },
      };
    },
    close: () => pool.end(),
  };
}

/** An item that no other test orders, and the submission of its order. */
export async function freshItem(db: Database, fingerprint?: string) {
  const item = randomUUID();
  await db.run(`INSERT INTO stock VALUES ('${item}', 0)`);
  return { item, submission: identify(item, { id: "order", fingerprint }) };
}

/** The effects of one order. */
export async function placeOrder(tx: SqlExecutor, item: string): Promise<{ item: string }> {
  await tx.query(`INSERT INTO orders VALUES (1, '${item}')`, []);
  await tx.query(`UPDATE stock SET changed = changed - 1 WHERE item = '${item}'`, []);
  await tx.query(`INSERT INTO outbox VALUES ('${item}')`, []);
  return { item };
}

export async function ledgerOf(db: Database, item: string): Promise<Ledger> {
  const count = (table: string) =>
    db.run(`SELECT count(*) AS n FROM ${table} WHERE item = '${item}'`);
  const [[orders], [outbox]] = [await count("orders"), await count("outbox")];
  const [stock] = await db.run(`SELECT changed FROM stock WHERE item = '${item}'`);
  return {
    orders: Number(orders?.["n"]),
    stock: Number(stock?.["changed"]),
    outbox: Number(outbox?.["n"]),
  };
}

/** What an application does: the transaction again where the database asks for it. */
export async function inTransaction<Result>(
  db: Database,
  work: (tx: Session) => Promise<Result>,
  isolation?: Isolation,
): Promise<Result> {
  for (let tries = 1; ; tries++) {
    const tx = await db.begin(isolation);
    try {
      const result = await work(tx);
      await tx.commit();
      return result;
    } catch (error) {
      await tx.rollback().catch(() => {});
      if (tries === 25 || !isRetryable(error)) throw error;
    } finally {
      await tx.close();
    }
  }
}
