// The order's own transaction, for the shops to copy beside it. The submission's row, the order, the
// stock and the outbox commit together, so a second run finds the first one's number and does nothing.
import { setTimeout } from "node:timers/promises";
import { PGlite } from "@electric-sql/pglite";
import pg from "pg";
import {
  isRetryable,
  type SqlExecutor,
  type SqlSubmission,
  SubmissionTable,
} from "submit-lock/sql";

interface Tx extends SqlExecutor {
  query(text: string, params: unknown[]): Promise<{ rows: unknown[] }>;
}
type Work<Result> = (tx: Tx) => Promise<Result>;

const submissions = new SubmissionTable({ schema: "example_shop" });
const migration = `CREATE SCHEMA example_shop;
  CREATE TABLE example_shop.orders (number serial PRIMARY KEY, buyer text, submission_id text UNIQUE);
  CREATE TABLE example_shop.stock (item text PRIMARY KEY, pieces integer CHECK (pieces >= 0));
  INSERT INTO example_shop.stock VALUES ('mug', 1000);
  CREATE TABLE example_shop.outbox (id serial, topic text, order_number integer);
  ${submissions.ddl}`;

/** Turns a cart into an order. Every run of one submission is the same order. */
export async function placeOrder(
  buyer: string | undefined,
  submission: SqlSubmission | undefined,
  signal: AbortSignal | undefined,
): Promise<number> {
  const { value } = await inTransaction((tx) =>
    submissions.once(tx, submission, async () => {
      const { rows } = await tx.query(
        "INSERT INTO example_shop.orders (buyer, submission_id) VALUES ($1, $2) RETURNING number",
        [buyer, submission?.id],
      );
      const [{ number }] = rows as [{ number: number }];
      await tx.query("UPDATE example_shop.stock SET pieces = pieces - 1 WHERE item = 'mug'", []);
      const outbox = "INSERT INTO example_shop.outbox (topic, order_number) VALUES ('placed', $1)";
      await tx.query(outbox, [number]);
      signal?.throwIfAborted(); // the lock was lost: roll back
      return { number };
    }),
  );
  await pay(submission?.id, signal);
  return value.number;
}

/** Yours: such as `fetch(provider, { signal, … })`, with the submission's id as the provider's key. */
async function pay(id: string | undefined, signal: AbortSignal | undefined): Promise<void> {
  await setTimeout(500, id, { signal }).catch(() => signal?.throwIfAborted());
}

async function inTransaction<Result>(work: Work<Result>): Promise<Result> {
  for (let tries = 1; ; tries++) {
    try {
      return await transaction(work);
    } catch (error) {
      if (tries === 5 || !isRetryable(error)) throw error;
    }
  }
}

// Without DATABASE_URL the database is in this process, and forgets everything at its end.
const url = process.env["DATABASE_URL"];
const transaction = url ? onPostgres(url) : embedded();
await inTransaction(async () => {});

function embedded(): <Result>(work: Work<Result>) => Promise<Result> {
  const db = new PGlite();
  const ready = db.exec(migration);
  return async (work) => {
    await ready;
    return await db.transaction(work);
  };
}

function onPostgres(connectionString: string): <Result>(work: Work<Result>) => Promise<Result> {
  const options = "-c lock_timeout=5s -c idle_in_transaction_session_timeout=30s";
  const pool = new pg.Pool({ connectionString, options });
  // A connection that breaks fails its transaction, or is replaced: without both it ends the process.
  pool.on("error", () => {});
  pool.on("connect", (client) => client.on("error", () => {}));
  const ready = pool.query(migration).catch((error: { code?: string }) => {
    if (error.code !== "42P06" && error.code !== "23505") throw error; // it is there already
  });
  return async (work) => {
    await ready;
    const client = await pool.connect();
    let failure: Error | undefined;
    try {
      await client.query("BEGIN");
      const result = await work(client);
      await client.query("COMMIT");
      return result;
    } catch (error) {
      failure = await client.query("ROLLBACK").then(
        () => undefined,
        (broken: Error) => broken,
      );
      throw error;
    } finally {
      client.release(failure); // a connection that could not even roll back is closed
    }
  };
}
