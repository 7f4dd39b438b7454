import supertest from "supertest";
import { afterAll, expect, test } from "vitest";
import { endAll, type Program } from "../../support/child.ts";
import { type RedisServer, startRedis } from "../../support/redis-server.ts";
import { runExample } from "./run-example.ts";

const servers: RedisServer[] = [];
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

async function urlOf(example: Program): Promise<string> {
  const [, url] = await example.prints(/(http:\/\/127\.0\.0\.1:\d+)\n/);
  return url as string;
}

test.concurrent.each(shops)(
  "the shop to copy on %s is one order for each form, and refuses while Redis is away",
  { timeout: 300_000 },
  async (name) => {
    const redis = await startRedis();
    servers.push(redis);
    const example = runExample(`examples/${name}/shop.ts`, {
      env: { PORT: "0", REDIS_URL: redis.url },
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

    await redis.kill();
    expect((await click()).status).toBe(503);
    // The new server is empty: the order's unique key finds the order that was placed.
    await redis.restart();
    let late = await click();
    while (late.status === 503) late = await click();
    expect(late).toEqual(first);
  },
);

test("a shop to copy needs no Redis to be tried", { timeout: 300_000 }, async () => {
  const { click } = await customerOf(
    await urlOf(runExample("examples/express/shop.ts", { env: { PORT: "0" } })),
  );
  const [first, second] = await Promise.all([click(), click()]);
  expect([first.status, second]).toEqual([303, first]);
});
