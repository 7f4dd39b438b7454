import supertest from "supertest";
import { afterAll, describe, test } from "vitest";
import { endAll } from "../../support/child.ts";
import { startRedis } from "../../support/redis-server.ts";
import { runExample } from "./run-example.ts";

afterAll(endAll);

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

describe.concurrent.each(shops)("the shop to copy on %s", { timeout: 120_000 }, (name) => {
  const file = `examples/${name}/shop.ts`;

  test("is one order for each form, without Redis", async ({ expect }) => {
    const example = runExample(file, { env: { PORT: "0" } });
    const [, url] = await example.prints(/(http:\/\/127\.0\.0\.1:\d+)\n/);
    const { agent, token, click } = await customerOf(url as string);
    const [first, second] = await Promise.all([click(), click()]);
    expect(first).toEqual({ status: 303, order: expect.stringMatching(/^\/orders\/\d+$/) });
    expect(second).toEqual(first);
    expect(await click()).toEqual(first);
    expect((await agent.get(first.order as string)).text).toMatch(/^Order \d+ is placed\.$/);

    // Another tab has a form of its own: its order waits for none, and is another one.
    const other = await click(`${token}-2`);
    expect(other).toEqual({ status: 303, order: expect.not.stringMatching(`^${first.order}$`) });

    expect(
      (
        await supertest(url as string)
          .post("/orders")
          .type("form")
          .send({ submissionId: token })
      ).status,
    ).toBe(401);
    expect((await agent.post("/orders").type("form").send({ other: 1 })).status).toBe(400);
  });

  test("refuses while Redis is away, and orders again afterwards", async ({
    expect,
    onTestFinished,
  }) => {
    const redis = await startRedis();
    onTestFinished(() => redis.stop());
    const example = runExample(file, { env: { PORT: "0", REDIS_URL: redis.url } });
    const [, url] = await example.prints(/(http:\/\/127\.0\.0\.1:\d+)\n/);
    const { click } = await customerOf(url as string);
    const { status, order } = await click();
    expect(status).toBe(303);
    await redis.kill();
    expect((await click()).status).toBe(503);
    // The new server is empty: the order's unique key finds the order that was placed.
    await redis.restart();
    let late = await click();
    while (late.status === 503) late = await click();
    expect(late).toEqual({ status: 303, order });
  });
});
