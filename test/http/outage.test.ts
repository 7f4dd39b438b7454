import { getRequestListener } from "@hono/node-server";
import express5 from "express";
import express4 from "express4";
import { Hono } from "hono";
import Koa3 from "koa";
import Koa2 from "koa2";
import supertest from "supertest";
import { afterEach, describe, expect, test, vi } from "vitest";
import { submitGuard as expressGuard } from "../../src/express/index.ts";
import { submitGuard as fetchGuard } from "../../src/fetch/index.ts";
import { RedisStore, type SubmitLock } from "../../src/index.ts";
import { submitGuard as koaGuard } from "../../src/koa/index.ts";
import { type AnyRedis, ioredis6, redisClients } from "../support/clients.ts";
import { command } from "../support/command.ts";
import { freshUser } from "../support/ids.ts";
import { closeLocks, openLock } from "../support/locks.ts";
import { startProxy } from "../support/proxy.ts";
import { Pulse } from "../support/pulse.ts";
import { forTest, sharedRedisPort, startRedis } from "../support/redis-server.ts";
import { until } from "../support/until.ts";
import { type Framework, newest } from "./frameworks.ts";
import { type OrderWork, openShop, patientTimes, type Shop } from "./shop.ts";
import type { Turn } from "./turn.ts";

const openProxy = () => forTest(startProxy(sharedRedisPort()));

const handler = async (turn: Turn, work: OrderWork) => {
  work.overNow();
  turn.answer(201, { order: "placed" });
};

const times = { acquireTimeoutMs: 300, commandTimeoutMs: 150 };

/**
 * A submit that is refused soon: within `acquireTimeoutMs` and what an answer takes. The machine may
 * be late with the arrival of the request, with the timer and with the arrival of the answer.
 */
async function isRefusedSoon(shop: Shop): Promise<void> {
  const pulse = await Pulse.of(sharedRedisPort());
  const from = performance.now();
  const reply = await shop.submit().reply;
  const tookMs = performance.now() - from;
  const lateMs = 3 * pulse.worstMs;
  pulse.stop();
  expect(reply.status).toBe(503);
  expect(JSON.parse(reply.body).code).toBe("submit_unavailable");
  expect(tookMs).toBeLessThan(times.acquireTimeoutMs + 300 + lateMs);
}

async function isUsable(shop: Shop): Promise<void> {
  const check = () =>
    shop.lock.check().then(
      () => true,
      () => false,
    );
  await until(check, { what: "the lock to be usable" });
}

/** The customer tries again, as `Retry-After` says, until the order is placed. */
async function goesThrough(shop: Shop): Promise<void> {
  await until(async () => (await shop.submit().reply).status === 201, {
    what: "an order to be placed",
    everyMs: 50,
  });
  await until(() => shop.published.releases.some(({ outcome }) => outcome === "released"), {
    what: "its release",
  });
}

describe.each(newest)("P6 and P7: an outage, on $name", (framework: Framework) => {
  test("a Redis that is killed means 503 soon, and a new one that orders go through again", async () => {
    const server = await forTest(startRedis());
    const redis = ioredis6.connect(server.port, { retryStrategy: () => 20 });
    const shop = await openShop({ framework, handler, times, redis });
    await goesThrough(shop);
    await server.kill();
    for (let i = 0; i < 3; i++) await isRefusedSoon(shop);
    expect(shop.errors).toEqual([]);
    await server.restart();
    await goesThrough(shop);
    expect(shop.work.overlaps).toBe(0);
    await until(async () => (await command(server.port, "DBSIZE")) === 0, {
      what: "Redis to be empty",
    });
  });

  test("a Redis that is silent means 503 soon, until it answers again", async () => {
    const proxy = await openProxy();
    const shop = await openShop({ framework, handler, times, redis: ioredis6.connect(proxy.port) });
    await goesThrough(shop);
    const { started } = shop.work;
    proxy.holdRequests();
    await Promise.all([isRefusedSoon(shop), isRefusedSoon(shop)]);
    await isRefusedSoon(shop);
    expect(shop.work.started).toBe(started);
    proxy.releaseHeld();
    await goesThrough(shop);
    // What was held came late, and is refused or retired.
    await shop.keyIsGone();
    expect(shop.work.overlaps).toBe(0);
  });

  test("an order whose Redis dies under it is answered as if nothing had happened", async () => {
    const server = await forTest(startRedis());
    const redis = ioredis6.connect(server.port, { retryStrategy: () => 20 });
    const shop = await openShop({
      framework,
      times: { acquireTimeoutMs: 1_000, commandTimeoutMs: 200 },
      redis,
      handler: async (turn, work) => {
        await server.kill();
        work.overNow();
        turn.answer(201, { order: "placed" });
      },
    });
    await isUsable(shop);
    expect(await shop.submit().reply).toMatchObject({ status: 201, body: '{"order":"placed"}' });
    await until(() => shop.published.releases.length === 1, { what: "the end of the release" });
    expect(shop.published.releases).toMatchObject([{ outcome: "unconfirmed" }]);
    expect(shop.errors).toEqual([]);
  });
});

const clientOptions = [
  { options: "default options", given: {} },
  { options: "a commandTimeout", given: { commandTimeout: 100 } },
];
const clients = redisClients.flatMap(({ name, connect }) =>
  clientOptions.map(({ options, given }) => ({
    client: `${name} with ${options}`,
    connect: (port: number): AnyRedis => connect(port, given),
  })),
);

const isAcquire = ([name]: string[]) => name?.toLowerCase() === "eval";

/** Redis applies the acquire of an order, and its reply never comes. */
async function loseAcquire(
  framework: Framework,
  connect: (port: number) => AnyRedis,
  loss: { resetAfterMs?: number },
): Promise<void> {
  const lossy = await openProxy();
  const shop = await openShop({
    framework,
    redis: connect(lossy.port),
    // Long enough for a busy machine to confirm: the end waits for it, and nothing before.
    times: { acquireTimeoutMs: 2_000, commandTimeoutMs: 200 },
    handler: async (turn, work) => {
      await work.over();
      turn.answer(201, { order: "placed" });
    },
  });
  // The connection and Redis' clock are known, as in a process that has been at work.
  await isUsable(shop);
  const lost = lossy.loseReplyOnce(isAcquire, loss);
  const { reply } = shop.submit();
  await lost;
  expect((await reply).status).toBe(201);
  expect(shop.work.started).toBe(1);
  await shop.isOverAfter(1);
  // The user is not stranded: the next order goes through at once.
  expect((await shop.rival()).status).toBe(201);
  await shop.isOverAfter(2);
}

/** Every framework, and every client: what a client does to a command, no framework can change. */
const cells = [
  ...newest.map((framework) => ({ framework, ...(clients[0] as (typeof clients)[0]) })),
  ...clients.slice(1).map((client) => ({ framework: newest[0] as Framework, ...client })),
];

// Both at once, because each waits at its end until no request of the acquire can take effect.
test.each(cells)(
  "an order on $framework.name whose acquire was applied and whose reply was lost is placed, once ($client)",
  async ({ framework, connect }) => {
    await Promise.all([
      loseAcquire(framework, connect, {}),
      loseAcquire(framework, connect, { resetAfterMs: 30 }),
    ]);
  },
);

describe("refusing redis", () => {
  afterEach(async () => {
    vi.restoreAllMocks();
    await closeLocks();
  });

  const redis = (...args: string[]) =>
    command(sharedRedisPort(), args[0] as string, ...args.slice(1));

  /** A client of a Redis user that may do everything but this. */
  async function clientWithout(right: string) {
    const username = freshUser();
    await redis("ACL", "SETUSER", username, "on", ">secret", "~*", "&*", "+@all", `-${right}`);
    return ioredis6.connect(sharedRedisPort(), { username, password: "secret" });
  }

  const handler = (turn: Turn) => turn.answer(201, { order: "placed" });

  describe.each(newest)("$name", (framework: Framework) => {
    test("a key of another type at the lock's name is contention, and is not touched", async () => {
      const shop = await openShop({ framework, handler });
      await redis("RPUSH", shop.key, "one", "two");
      expect((await shop.submit().reply).status).toBe(409);
      expect(await redis("LRANGE", shop.key, "0", "-1")).toEqual(["one", "two"]);
      expect(await redis("PTTL", shop.key)).toBe(-1);
      expect(shop.work.started).toBe(0);
      await redis("DEL", shop.key);
    });

    test("P9: a lock that is closed is no outage, in which an order would run without it", async () => {
      const guard = { onUnavailable: "proceed", idempotency: {} } as const;
      const shop = await openShop({ framework, handler, guard });
      await shop.lock.close();
      const headers = { "idempotency-key": "a-key" };
      expect((await shop.submit({ headers }).reply).status).toBe(503);
      expect(shop.work.started).toBe(0);
    });

    // Each way in which the permission may lack, and each choice for an outage.
    test.each([
      ["eval", "reject"],
      ["set", "proceed"],
    ] as const)(
      "a Redis user who may not %s is a misconfiguration that the error handler sees, with onUnavailable %j",
      async (right, onUnavailable) => {
        const redis = await clientWithout(right);
        const shop = await openShop({ framework, handler, redis, guard: { onUnavailable } });
        expect((await shop.submit().reply).status).toBe(503);
        expect(shop.errors).toMatchObject([
          { name: "LockMisconfiguredError", code: "SUBMIT_LOCK_MISCONFIGURED", status: 503 },
        ]);
        expect(shop.work.started).toBe(0);
        expect(await shop.owner()).toBeNull();
      },
    );
  });

  /** Applications in production without an error handler of their own. */
  const bareApps: {
    name: string;
    app: (lock: SubmitLock) => Parameters<typeof supertest>[0];
    status?: number;
  }[] = [
    ...([express4, express5] as const).map((lib, i) => ({
      name: `Express ${4 + i}`,
      app: (lock: SubmitLock) => {
        const app = lib().set("env", "production");
        const guard = expressGuard({ lock, userId: () => "42" });
        return app.post(
          "/orders",
          guard.protect((_req, res) => void res.json({})),
        );
      },
    })),
    ...([Koa2, Koa3] as const).map((lib, i) => ({
      name: `Koa ${2 + i}`,
      app: (lock: SubmitLock) => {
        const app = new lib();
        app.use(koaGuard({ lock, userId: () => "42" }));
        return app.callback();
      },
    })),
    {
      name: "Hono 4",
      // It does not read the status of an error.
      status: 500,
      app: (lock) => {
        const guard = fetchGuard({ lock, userId: () => "42" });
        const place = guard.protect(() => new Response("placed"));
        return getRequestListener(new Hono().post("/orders", (c) => place(c.req.raw)).fetch);
      },
    },
  ];

  test.each(bareApps)(
    "the default error handler of $name logs why, and tells the client nothing",
    async ({ app, status = 503 }) => {
      const log = vi.spyOn(console, "error").mockImplementation(() => {});
      const lock = openLock({
        store: new RedisStore(await clientWithout("eval")),
        ...patientTimes,
      });
      const reply = await supertest(app(lock)).post("/orders");
      expect(reply.status).toBe(status);
      expect(reply.text).not.toMatch(/NOPERM|eval|lock:|permission/i);
      // Express logs a moment after it has answered.
      await expect.poll(() => log.mock.calls.join("\n")).toContain("Redis does not permit");
    },
  );
});
