const express = require("express");
const { MemoryStore, SubmitLock } = require("submit-lock");
const { submitGuard } = require("submit-lock/express");
const { submitGuard: fastifyGuard } = require("submit-lock/fastify");
const { submitGuard: fetchGuard } = require("submit-lock/fetch");
const { submitGuard: koaGuard } = require("submit-lock/koa");
const twoClicks = require("./two-clicks.cjs");

test("a second click gets 409 while the first order is placed", async () => {
  const lock = new SubmitLock({ store: new MemoryStore() });
  const statuses = await twoClicks((work) => {
    const guard = submitGuard({ lock, userId: () => "42" });
    const app = express();
    app.post(
      "/orders",
      guard.protect(async (_req, res) => {
        await work();
        res.status(201).end();
      }),
    );
    return app;
  });
  expect(statuses).toEqual([201, 409]);
  await lock.close();
});

test("the other adapters load without their frameworks", () => {
  for (const guard of [fastifyGuard, fetchGuard, koaGuard]) expect(typeof guard).toBe("function");
});
