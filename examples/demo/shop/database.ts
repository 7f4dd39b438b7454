import { PGlite } from "@electric-sql/pglite";
import pg from "pg";
import { schema, submissions } from "./schema.ts";

/** What runs SQL: the database itself, or a transaction of it. */
export interface Sql {
  query<Row>(text: string, values?: readonly unknown[]): Promise<Row[]>;
}

export interface Database extends Sql {
  /** Commits what `work` did, or rolls it back if it rejects. */
  transaction<Result>(work: (tx: Sql) => Promise<Result>): Promise<Result>;
  /** For the terminal. */
  readonly place: string;
  close(): Promise<void>;
}

/**
 * The PostgreSQL at `url`, or one inside this process, which forgets everything at its end. Never a
 * silent fallback: whoever sets `DATABASE_URL` wants to see that database at work.
 */
export async function openDatabase(url: string | undefined): Promise<Database> {
  const database = url === undefined || url === "" ? embedded() : connectTo(url);
  try {
    // One statement after the other, in one transaction; a second server waits for the first.
    await database.transaction(async (tx) => {
      await tx.query("SELECT pg_advisory_xact_lock(7264501)");
      for (const statement of schema.split(";\n")) await tx.query(statement);
      const there = "SELECT to_regclass('demo_shop.submissions') IS NOT NULL AS there";
      const [submitted] = await tx.query<{ there: boolean }>(there);
      if (submitted?.there) return;
      for (const statement of submissions.ddl.split(";\n")) await tx.query(statement);
    });
    return database;
  } catch (error) {
    await database.close();
    throw new Error(`The database ${database.place} cannot be used: ${describe(error)}`);
  }
}

function embedded(): Database {
  const db = new PGlite();
  return {
    place: "in the memory of this process (set DATABASE_URL for a PostgreSQL of yours)",
    query: async (text, values) => (await db.query(text, values as unknown[])).rows as never,
    transaction: (work) =>
      db.transaction((tx) =>
        work({ query: async (text, values) => (await tx.query(text, values as [])).rows as never }),
      ),
    close: () => db.close(),
  };
}

function connectTo(url: string): Database {
  const pool = new pg.Pool({ connectionString: url, max: 10, connectionTimeoutMillis: 5_000 });
  // A connection that breaks fails its transaction, or is replaced: without both it ends the process.
  pool.on("error", () => {});
  pool.on("connect", (client) => client.on("error", () => {}));
  return {
    place: `in PostgreSQL at ${url.replace(/\/\/[^@/]*@/, "//")}`,
    query: async (text, values) => (await pool.query(text, values as unknown[])).rows,
    async transaction(work) {
      const client = await pool.connect();
      let failure: Error | undefined;
      try {
        await client.query("BEGIN");
        const result = await work({
          query: async (text, values) => (await client.query(text, values as unknown[])).rows,
        });
        await client.query("COMMIT");
        return result;
      } catch (error) {
        failure = await client.query("ROLLBACK").then(
          () => undefined,
          (broken: Error) => broken,
        );
        throw error;
      } finally {
        // A connection that could not even roll back is closed.
        client.release(failure);
      }
    },
    close: () => pool.end(),
  };
}

function describe(error: unknown): string {
  // A host with several addresses gives an AggregateError, whose message is empty.
  if (error instanceof AggregateError) return error.errors.map(describe).join(", ");
  return error instanceof Error ? error.message : String(error);
}
