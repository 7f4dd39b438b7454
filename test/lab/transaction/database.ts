import { setImmediate } from "node:timers/promises";
import { isRetryable, type SqlExecutor } from "../../../src/sql/index.ts";
import type { DatabaseName, Schedule, Settings } from "./schedule.ts";

/** A blow may fall at each call of it, as soon as the connection that it could cut is known. */
export type Point = (cut?: () => void) => Promise<void>;

/** A transaction of the shop, with a point in front of each statement. */
export interface Tx extends SqlExecutor {
  /** The first row, if the statement has any. */
  row(text: string, params: unknown[]): Promise<Record<string, unknown> | undefined>;
  /** The number of a new order, and how many rows a statement has changed. */
  write(text: string, params: unknown[]): Promise<{ insertId: number; changed: number }>;
}

export interface ShopDatabase {
  transaction<Result>(
    isolation: Schedule["isolation"],
    point: Point,
    work: (tx: Tx) => Promise<Result>,
  ): Promise<Result>;
  close(): Promise<void>;
}

/** Statements are written for MySQL and MariaDB, whose placeholders are question marks. */
export const onPostgres = (text: string): string => {
  let at = 0;
  return text.replace(/\?/g, () => `$${++at}`);
};

interface Connection {
  query(text: string, params?: unknown[]): Promise<unknown>;
  cut(): void;
  release(isBroken: boolean): void;
}

export async function openDatabase({ database, url }: Settings): Promise<ShopDatabase> {
  const isPostgres = database === "PostgreSQL";
  const { connect, close } = await (isPostgres ? postgres(url) : mysql(url, database));
  async function once<Result>(
    isolation: Schedule["isolation"],
    point: Point,
    work: (tx: Tx) => Promise<Result>,
  ): Promise<Result> {
    const connection = await connect();
    const query = async (text: string, params: unknown[] = []) => {
      await point(connection.cut);
      return await connection.query(text, params);
    };
    const send = (text: string, params: unknown[]) =>
      query(isPostgres ? onPostgres(text) : text, params);
    const tx: Tx = {
      query,
      async row(text, params) {
        const result = (await send(text, params)) as { rows?: object[] } & object[][];
        return (result.rows ?? result[0])?.[0] as Record<string, unknown> | undefined;
      },
      async write(text, params) {
        if (!isPostgres) {
          const [header] = (await send(text, params)) as {
            insertId: number;
            affectedRows: number;
          }[];
          return { insertId: Number(header?.insertId), changed: Number(header?.affectedRows) };
        }
        const { rows } = (await send(`${text} RETURNING *`, params)) as {
          rows: { number: number }[];
        };
        return { insertId: Number(rows[0]?.number), changed: rows.length };
      },
    };
    let isBroken = true;
    try {
      if (!isPostgres) await connection.query(`SET TRANSACTION ISOLATION LEVEL ${isolation}`);
      await query(isPostgres ? `BEGIN ISOLATION LEVEL ${isolation}` : "START TRANSACTION");
      const result = await work(tx);
      await point(connection.cut);
      const committed = connection.query("COMMIT");
      committed.catch(() => {});
      // COMMIT is on its way, and not answered.
      await setImmediate();
      await point(connection.cut);
      await committed;
      isBroken = false;
      return result;
    } catch (error) {
      isBroken = await connection.query("ROLLBACK").then(
        () => false,
        () => true,
      );
      throw error;
    } finally {
      connection.release(isBroken);
    }
  }
  return {
    close,
    async transaction(isolation, point, work) {
      for (let tries = 1; ; tries++) {
        try {
          return await once(isolation, point, work);
        } catch (error) {
          if (tries === 10 || !isRetryable(error)) throw error;
        }
      }
    },
  };
}

async function postgres(connectionString: string) {
  // Each shop loads what it uses: hundreds of them are started.
  const { default: pg } = await import("pg");
  const options = "-c lock_timeout=4000 -c idle_in_transaction_session_timeout=4000";
  const pool = new pg.Pool({ connectionString, max: 4, options });
  pool.on("error", () => {});
  pool.on("connect", (client) => client.on("error", () => {}));
  return {
    close: () => pool.end(),
    async connect(): Promise<Connection> {
      const client = await pool.connect();
      const { stream } = (client as unknown as { connection: { stream: { destroy(): void } } })
        .connection;
      return {
        query: (text, params) => client.query(text, params ?? []),
        cut: () => stream.destroy(),
        release: (isBroken) => client.release(isBroken ? new Error("broken") : undefined),
      };
    },
  };
}

async function mysql(uri: string, database: DatabaseName) {
  const { createPool } = await import("mysql2/promise");
  const pool = createPool({ uri, connectionLimit: 4 });
  pool.on("connection", (connection) => {
    connection.on("error", () => {});
    // MySQL has no bound for an idle transaction.
    const idle = database === "MariaDB" ? ", idle_transaction_timeout = 4" : "";
    connection.query(`SET SESSION innodb_lock_wait_timeout = 4${idle}`);
  });
  return {
    close: () => pool.end(),
    async connect(): Promise<Connection> {
      const connection = await pool.getConnection();
      return {
        query: (text, params) => connection.query(text, params ?? []),
        cut: () => connection.destroy(),
        release: (isBroken) => (isBroken ? connection.destroy() : connection.release()),
      };
    },
  };
}
