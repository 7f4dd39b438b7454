import { randomUUID } from "node:crypto";
import pg from "pg";
import { SubmissionTable } from "../src/sql/index.ts";
import { startPostgres } from "../test/support/sql-servers.ts";

/**
 * `npx tsx bench/transaction.ts [ORDERS]`: a fresh order with `submissions.once` beside one with a
 * unique key alone, in turns on one connection of a real PostgreSQL. Medians, and what a row takes.
 */
const orders = Number(process.argv[2] ?? 500);
const server = await startPostgres({ isSafe: true });
if (server === undefined) throw new Error("there is no PostgreSQL here");
const client = new pg.Client({ connectionString: server.url });
await client.connect();
const submissions = new SubmissionTable();
await client.query(`CREATE TABLE orders (number serial PRIMARY KEY, submission_id text UNIQUE);
  CREATE TABLE stock (pieces int); INSERT INTO stock VALUES (1000000);
  CREATE TABLE outbox (number int); ${submissions.ddl}`);

let statements = 0;
const tx = {
  query(text: string, params: unknown[] = []) {
    statements++;
    return client.query(text, params);
  },
};
const rest = async (number: unknown) => {
  await tx.query("UPDATE stock SET pieces = pieces - 1");
  await tx.query("INSERT INTO outbox VALUES ($1)", [number]);
};
const insert = "INSERT INTO orders (submission_id) VALUES ($1)";
const subjects = {
  async snippet(id: string) {
    const update = "ON CONFLICT (submission_id) DO UPDATE SET submission_id = $1 RETURNING number";
    const { rows } = await tx.query(`${insert} ${update}`, [id]);
    await rest(Object(rows[0]).number);
  },
  async once(id: string) {
    await submissions.once(tx, { id, fingerprint: id }, async () => {
      const { rows } = await tx.query(`${insert} RETURNING number`, [id]);
      const { number } = Object(rows[0]);
      await rest(number);
      return { number, at: new Date() };
    });
  },
};

const took: Record<keyof typeof subjects, number[]> = { snippet: [], once: [] };
const sent: Record<keyof typeof subjects, number> = { snippet: 0, once: 0 };
const names = ["snippet", "once"] as const;
for (let order = -50; order < orders; order++) {
  for (const name of order % 2 === 0 ? names : names.toReversed()) {
    const id = randomUUID().replaceAll("-", "").slice(0, 22);
    statements = 0;
    const from = performance.now();
    await tx.query("BEGIN");
    await subjects[name](id);
    await tx.query("COMMIT");
    if (order >= 0) took[name].push(performance.now() - from);
    sent[name] = statements;
  }
}

const at = (values: number[], part: number) =>
  [...values].sort((one, other) => one - other)[Math.floor(values.length * part)]?.toFixed(2);
for (const name of names) {
  const [tenth, median] = [at(took[name], 0.1), at(took[name], 0.5)];
  console.log(`${name}: ${sent[name]} statements, tenth ${tenth} ms, median ${median} ms`);
}
// A page is half empty at first: what a row takes is seen among many.
await client.query(`INSERT INTO submissions (id, fingerprint, value)
  SELECT left(md5(n::text), 22), left(md5(n::text), 22), '{"number":1234567,"at":"2026-11-26T08:00"}'
  FROM generate_series(1, 100000) AS n`);
const size = "SELECT pg_total_relation_size('submissions') / count(*) AS bytes FROM submissions";
console.log(`a row: ${Object((await client.query(size)).rows[0]).bytes} bytes`);
console.log(`${server.version}, ${orders} orders each, Node ${process.version}`);
await client.end();
await server.stop();
