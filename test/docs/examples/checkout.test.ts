import { once } from "node:events";
import { createServer as createHttpServer } from "node:http";
import { type AddressInfo, createServer } from "node:net";
import { fileURLToPath } from "node:url";
import { afterAll, describe, expect, test } from "vitest";
import { listen, portFrom } from "../../../examples/demo/listen.ts";
import { openDatabase } from "../../../examples/demo/shop/database.ts";
import { openStore } from "../../../examples/store.ts";
import { endAll, Program } from "../../support/child.ts";
import { command } from "../../support/command.ts";
import { freePort } from "../../support/free-port.ts";
import { type RedisServer, startRedis } from "../../support/redis-server.ts";
import { until } from "../../support/until.ts";
import { ownDatabase } from "./own-database.ts";
import { runExample } from "./run-example.ts";

const redisServers: RedisServer[] = [];

// After all of them: they run at the same time, since they mostly wait for orders to be placed.
afterAll(async () => {
  endAll();
  await Promise.all(redisServers.map((server) => server.stop()));
});

async function urlOf(example: Program): Promise<string> {
  const [, url] = await example.prints(/(http:\/\/127\.0\.0\.1:\d+)\n/);
  return url as string;
}

/** Every key that is no record of an answer. */
async function locksOn(redis: RedisServer): Promise<string[]> {
  const keys = (await command(redis.port, "keys", "*")) as string[];
  return keys.filter((key) => !key.startsWith("{"));
}

function ask(url: string, method: string, path: string, token = "token-of-ada"): Promise<Response> {
  return fetch(url + path, { method, headers: { authorization: `Bearer ${token}` } });
}

/** How often each answer is on the time axes of the play. */
function answersOf(output: string): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const [, answer] of output.matchAll(/\| {2,}(\d{3} \w+)/g)) {
    counts[answer as string] = (counts[answer as string] ?? 0) + 1;
  }
  return counts;
}

const frameworks = [
  ["Express", "examples/demo/express.ts"],
  ["Koa", "examples/demo/koa.ts"],
] as const;

describe.concurrent("the checkout", () => {
  test.each(frameworks)("on %s plays its customers and ends well with --once", async (...given) => {
    const [framework, file] = given;
    // One of them with the database that a first visitor gets, which is the same on both.
    const database = framework === "Koa" ? await ownDatabase() : {};
    const example = runExample(file, { args: ["--once"], env: { PORT: "0", ...database } });
    expect(await example.ended, example.output()).toBe(0);
    const output = example.output();
    expect(output).toContain(`A shop on ${framework}: http://127.0.0.1:`);
    expect(output).toContain("in the memory of this process");
    const answers = answersOf(output);
    // Ten clicks, two orders side by side, and three clicks of one order.
    expect(answers["201 order"]).toBe(6);
    expect(output.match(/201 order \d+, again\n/g)).toHaveLength(2);
    const { "409 submit_contended": contended = 0, "422 cart_empty": late = 0 } = answers;
    // Nine clicks and the last retry. 422: on a busy machine, a click arrives behind the order.
    expect(contended + late).toBeGreaterThanOrEqual(10);
    for (const count of [contended, late]) expect(count).toBeGreaterThan(0);
    expect(output.match(/Retry-After: 1\n/g)).toHaveLength(contended);
    expect(output).toContain("All of it went as it should.");
  });

  // Chromium sees the page on both frameworks: `test/lab/browser`.
  const served = process.env["TEST_HEAVY"] === "all" ? frameworks : frameworks.slice(0, 1);
  test.each(served)(
    "on %s serves its page on Redis, and frees the user when it is ended",
    async (...given) => {
      const [, file] = given;
      const redis = await startRedis();
      redisServers.push(redis);
      const env = { PORT: "0", REDIS_URL: redis.url, ...(await ownDatabase()) };
      const example = runExample(file, { env });
      const url = await urlOf(example);
      await example.prints(/it is your turn/);
      expect(example.output()).toContain(`in Redis at ${redis.url}`);
      expect(await locksOn(redis)).toEqual([]);

      const page = await fetch(url);
      expect(page.headers.get("content-type")).toContain("text/html");
      const html = await page.text();
      for (const name of ["Place order", "Click ten times", "Fill the cart again"]) {
        expect(html).toContain(`>${name}</button>`);
      }
      // Nothing is loaded from elsewhere.
      expect(html).not.toMatch(/(src|href)="(?!data:|\/(?!\/))/);
      for (const [, file] of html.matchAll(/(?:src|href)="(\/page\/[^"]+)"/g)) {
        expect((await fetch(url + file)).status, file).toBe(200);
      }

      // What the buttons do.
      expect((await ask(url, "POST", "/orders", "of nobody")).status).toBe(401);
      expect((await ask(url, "GET", "/cart", "of nobody")).status).toBe(401);
      // A refusal is a page of the shop for a person, and a document for a program.
      for (const path of ["/orders", "/lock/orders", "/nothing/orders"]) {
        const asPerson = { method: "POST", headers: { accept: "text/html" } };
        const refusal = await fetch(url + path, asPerson);
        expect([path, refusal.status]).toEqual([path, 401]);
        expect(refusal.headers.get("content-type")).toContain("text/html");
        expect(await refusal.text()).toMatch(
          /href="\/page\/page\.css"[\s\S]*You are not signed in/,
        );
        const { headers } = await ask(url, "POST", path, "of nobody");
        expect(headers.get("content-type")).toMatch(/^application\/(problem\+)?json/);
      }
      expect((await ask(url, "PUT", "/cart")).status).toBe(200);
      const headers = { "content-type": "application/json", authorization: "Bearer token-of-ada" };
      const refused = await fetch(`${url}/orders`, { method: "POST", headers, body: "{" });
      expect([refused.status, await refused.json()]).toMatchObject([400, { code: "bad_request" }]);
      // Ten connections that are open already, so that the clicks arrive at once.
      const ten = Array.from({ length: 10 });
      await Promise.all(ten.map(async () => await (await ask(url, "GET", "/cart")).text()));
      const clicks = ten.map(() => ask(url, "POST", "/orders"));
      const statuses = (await Promise.all(clicks)).map(({ status }) => status);
      // 422: on a machine that is very busy, a click arrives when the order is over.
      const [placed, contended] = [201, 409].map((each) => statuses.filter((one) => one === each));
      expect(placed, `${statuses}`).toHaveLength(1);
      expect(contended?.length, `${statuses}`).toBeGreaterThan(0);
      expect(statuses.filter((each) => ![201, 409, 422].includes(each))).toEqual([]);
      expect((await ask(url, "POST", "/orders")).status).toBe(422);

      await ask(url, "PUT", "/cart");
      const order = ask(url, "POST", "/orders");
      const key = "demo:lock:submit:ada";
      await until(() => command(redis.port, "exists", key), { what: "the lock of an order" });
      example.kill("SIGTERM");
      expect((await order).status).toBe(201);
      expect(await example.ended, example.output()).toBe(0);
      expect(await locksOn(redis)).toEqual([]);
    },
  );

  test("ends with an error when the play goes wrong", async () => {
    const file = fileURLToPath(new URL("./unguarded-checkout.ts", import.meta.url));
    const env = { PORT: "0", ...(await ownDatabase()) };
    const example = runExample(file, { args: ["--once"], env });
    expect(await example.ended).toBe(1);
    expect(example.output()).toContain("expected one 201 and nine 409 with Retry-After, got");
    expect(example.output()).not.toContain("All of it went as it should");
  });

  test("ends with an error, and without its password, when Redis cannot be reached", async () => {
    const port = await freePort();
    const REDIS_URL = `redis://someone:s3cret@127.0.0.1:${port}`;
    const example = runExample(frameworks[0][1], { env: { PORT: "0", REDIS_URL } });
    expect(await example.ended).toBe(1);
    expect(example.output()).toContain(`Redis at redis://127.0.0.1:${port} cannot be used`);
    expect(example.output()).toContain("ECONNREFUSED");
    expect(example.output()).not.toMatch(/s3cret|A shop on|\n {4}at /);
  });
});

test("a Redis that accepts the connection and says nothing cannot be used", async () => {
  const silent = createServer().listen(0, "127.0.0.1");
  await once(silent, "listening");
  const { port } = silent.address() as AddressInfo;
  const opening = openStore(`redis://127.0.0.1:${port}`);
  await expect(opening).rejects.toThrow("cannot be used: it was not ready within 5000 ms");
  silent.close();
});

test("a database that cannot be reached cannot be used", async () => {
  const port = await freePort();
  const opening = openDatabase(`postgres://someone:s3cret@127.0.0.1:${port}/shop`);
  const said = `The database in PostgreSQL at postgres://127.0.0.1:${port}/shop cannot be used`;
  await expect(opening).rejects.toThrow(new RegExp(`^${said}: .*ECONNREFUSED`));
});

test("another port is taken when 3000 is taken, and none when the given one is", async () => {
  const [somebody, shop] = [createHttpServer(), createHttpServer()];
  try {
    // It may well be taken already.
    await listen(somebody, 3000).catch(() => {});
    expect(await listen(shop, portFrom(undefined))).not.toBe("http://127.0.0.1:3000");
    const taken = listen(createHttpServer(), portFrom("3000"));
    await expect(taken).rejects.toThrow(
      "Port 3000 cannot be used (EADDRINUSE). Set PORT to another",
    );
    expect(() => portFrom("http")).toThrow(
      'PORT has to be a number from 0 to 65535, and is "http".',
    );
  } finally {
    somebody.close();
    shop.close();
  }
});

test("a silent command of the demo has dots until the invitation, and keeps its exit code", async () => {
  const command = "sleep 3; echo first; echo Now it is your turn; sleep 3; exit 3";
  const args = ["examples/demo/never-silent.js", "Waiting", command];
  const program = new Program(process.execPath, args);
  expect(await program.ended).toBe(3);
  expect(program.output()).toMatch(/^Waiting …\n {2}\.+\nfirst\nNow it is your turn\n$/);
});
