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
import { ioredis6 } from "../support/clients.ts";
import { command } from "../support/command.ts";
import { freshUser } from "../support/ids.ts";
import { closeLocks, openLock } from "../support/locks.ts";
import { sharedRedisPort } from "../support/redis-server.ts";
import { type Framework, newest } from "./frameworks.ts";
import { openShop, patientTimes } from "./shop.ts";
import type { Turn } from "./turn.ts";

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
    const lock = openLock({ store: new RedisStore(await clientWithout("eval")), ...patientTimes });
    const reply = await supertest(app(lock)).post("/orders");
    expect(reply.status).toBe(status);
    expect(reply.text).not.toMatch(/NOPERM|eval|lock:|permission/i);
    // Express logs a moment after it has answered.
    await expect.poll(() => log.mock.calls.join("\n")).toContain("NOPERM");
  },
);
