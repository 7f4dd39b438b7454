import { once } from "node:events";
import { type AddressInfo, connect, createServer } from "node:net";
import pg from "pg";
import supertest from "supertest";
import { afterAll, expect, test } from "vitest";
import { endAll, type Program } from "../../support/child.ts";
import { type RedisServer, startRedis } from "../../support/redis-server.ts";
import { startPostgres } from "../../support/sql-servers.ts";
import { until } from "../../support/until.ts";
import { ownDatabase } from "./own-database.ts";
import { runExample } from "./run-example.ts";

const servers: Pick<RedisServer, "stop">[] = [];
afterAll(async () => {
  endAll();
  await Promise.all(servers.map((server) => server.stop()));
});

const shops = ["express", "koa", "fastify", "hono"];

/** A customer with a session: the form's page, and a click on its button. */
async function customerOf(url: string) {
  const agent = supertest.agent(url);
  const page = await agent.get("/");
  const token = /name="submissionId" value="([^"]+)"/.exec(page.text)?.[1] as string;
  const click = async (id = token) => {
    const answer = await agent.post("/orders").type("form").send({ submissionId: id }).redirects(0);
    return { status: answer.status, order: answer.headers["location"] as string | undefined };
  };
  return { agent, token, click };
}

/** A way to PostgreSQL on which, once it loses, nobody hears what came of a COMMIT. */
async function wayTo(postgres: { port: number; url: string }) {
  let loses = false;
  const server = createServer((client) => {
    const upstream = connect(postgres.port, "127.0.0.1");
    client.on("data", (chunk) => {
      if (loses && chunk.includes("COMMIT")) upstream.unpipe(client);
      upstream.write(chunk);
    });
    upstream.pipe(client);
    client.on("error", () => {}).on("close", () => upstream.destroy());
    upstream.on("error", () => {}).on("close", () => client.destroy());
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  return {
    url: postgres.url.replace(`:${postgres.port}/`, `:${port}/`),
    loseCommits() {
      loses = true;
    },
    stop: async () => void server.close(),
  };
}

async function urlOf(example: Program): Promise<string> {
  const [, url] = await example.prints(/(http:\/\/127\.0\.0\.1:\d+)\n/);
  return url as string;
}

test.concurrent.each(shops)(
  "the shop to copy on %s is one order for each form, also while Redis is away",
  async (name) => {
    const redis = await startRedis();
    servers.push(redis);
    const example = runExample(`examples/${name}/shop.ts`, {
      env: { PORT: "0", REDIS_URL: redis.url, ...(await ownDatabase()) },
    });
    const url = await urlOf(example);
    const { agent, token, click } = await customerOf(url);
    const [first, second] = await Promise.all([click(), click()]);
    expect(first).toEqual({ status: 303, order: expect.stringMatching(/^\/orders\/\d+$/) });
    expect(second).toEqual(first);
    expect(await click()).toEqual(first);
    expect((await agent.get(first.order as string)).text).toMatch(/^Order \d+ is placed\.$/);

    // Another tab has a form of its own: its order waits for none, and is another one.
    const other = await click(`${token}-2`);
    expect(other).toEqual({ status: 303, order: expect.not.stringMatching(`^${first.order}$`) });

    const stranger = supertest(url).post("/orders").type("form").send({ submissionId: token });
    expect((await stranger).status).toBe(401);
    expect((await agent.post("/orders").type("form").send({ other: 1 })).status).toBe(400);

    // The transaction has the last word: it finds the order that was placed.
    await redis.kill();
    expect(await click()).toEqual(first);
    const third = await click(`${token}-3`);
    expect(third).toEqual({ status: 303, order: expect.stringMatching(/^\/orders\/\d+$/) });
    // The new server is empty.
    await redis.restart();
    expect(await click()).toEqual(first);
    expect(await click(`${token}-3`)).toEqual(third);
  },
);

// The sessions of Express end with the process, so its customer is another one then.
test.concurrent.for(["koa", "fastify", "hono"])(
  "the shop to copy on %s, killed behind its commit, answers a later click with that order",
  async (name, { skip }) => {
    const postgres = await startPostgres();
    if (postgres === undefined) return skip("there is no PostgreSQL here");
    const redis = await startRedis();
    const way = await wayTo(postgres);
    servers.push(postgres, redis, way);
    const db = new pg.Client({ connectionString: postgres.url });
    // Where the test fails, its server stops before this connection has ended.
    db.on("error", () => {});
    await db.connect();
    const open = (database: string) => {
      const secret = { SECRET: "of the shop" };
      const env = { PORT: "0", REDIS_URL: redis.url, DATABASE_URL: database, ...secret };
      return runExample(`examples/${name}/shop.ts`, { env });
    };
    const ledger = async () => {
      const count = "SELECT count(*)::int AS n, min(number) AS number FROM example_shop.orders";
      const { rows } = await db.query(
        `SELECT n, number, pieces, (SELECT count(*)::int FROM example_shop.outbox) AS messages
         FROM (${count}) AS orders, example_shop.stock`,
      );
      return rows[0] as { n: number; number: number } | undefined;
    };
    const first = open(way.url);
    const page = await fetch(await urlOf(first));
    const cookie = page.headers.getSetCookie().map((line) => line.replace(/;.*/, ""));
    const click = async (example: Program) => {
      const answer = await fetch(`${await urlOf(example)}/orders`, {
        method: "POST",
        redirect: "manual",
        headers: { cookie: cookie.join("; ") },
        body: new URLSearchParams({ submissionId: "of the form" }),
      });
      return answer.headers.get("location");
    };
    way.loseCommits();
    const lost = click(first).catch(() => "no answer");
    const isPlaced = async () => (await ledger())?.n === 1;
    await until(isPlaced, { what: "the commit", boundMs: 60_000 });
    first.kill("SIGKILL");
    expect(await lost).toBe("no answer");
    const second = open(postgres.url);
    // Until the lock of the process that is dead has run out, the submission is in flight.
    const answer = await until(() => click(second), { what: "an order", boundMs: 60_000 });
    expect(await ledger()).toEqual({ n: 1, number: 1, pieces: 999, messages: 1 });
    expect(answer).toBe("/orders/1");
    await db.end();
  },
);

// pg takes its own listener off a connection that is in use: without another, its error ends the process.
test("the shop to copy goes on where a database connection breaks within an order", async ({
  skip,
  onTestFinished,
}) => {
  const { DATABASE_URL } = await ownDatabase();
  if (DATABASE_URL === undefined) return skip("there is no PostgreSQL here");
  const example = runExample("examples/express/shop.ts", { env: { PORT: "0", DATABASE_URL } });
  const { click } = await customerOf(await urlOf(example));
  onTestFinished(() => example.kill("SIGCONT"));
  const db = new pg.Client({ connectionString: DATABASE_URL });
  db.on("error", () => {});
  await db.connect();
  const sessions = async (which: string) => {
    const of = "SELECT pid FROM pg_stat_activity WHERE datname = current_database()";
    return (await db.query(`${of} AND pid <> pg_backend_pid() AND ${which}`)).rows;
  };
  await db.query("BEGIN");
  await db.query("SELECT * FROM example_shop.stock FOR UPDATE");
  const order = click();
  const waits = async () => (await sessions("wait_event_type = 'Lock'")).length === 1;
  await until(waits, { what: "the order to wait" });
  // The reply and the end of its connection come together, as at a failover or behind a pause.
  example.kill("SIGSTOP");
  await db.query("COMMIT");
  const isIdle = async () => (await sessions("state = 'idle in transaction'"))[0];
  const { pid } = await until(isIdle, { what: "the order's reply" });
  await db.query("SELECT pg_terminate_backend($1)", [pid]);
  const isGone = async () => (await sessions(`pid = ${pid}`)).length === 0;
  await until(isGone, { what: "the end of its connection" });
  example.kill("SIGCONT");
  expect(await order).toEqual({ status: 500 });
  expect(await click()).toMatchObject({ status: 303 });
  await db.end();
});

test("a shop to copy needs no Redis to be tried", async () => {
  const { click } = await customerOf(
    await urlOf(runExample("examples/express/shop.ts", { env: { PORT: "0" } })),
  );
  const [first, second] = await Promise.all([click(), click()]);
  expect([first.status, second]).toEqual([303, first]);
});

// Express 5 calls the listener with the error; the others throw it by themselves.
test("the shop to copy on Express says that its port is taken", async () => {
  const redis = await startRedis();
  servers.push(redis);
  const env = { PORT: `${redis.port}`, REDIS_URL: redis.url, ...(await ownDatabase()) };
  const example = runExample("examples/express/shop.ts", { env });
  expect(await example.ended).toBe(1);
  expect(example.output()).toMatch(/EADDRINUSE.*already in use/);
});
