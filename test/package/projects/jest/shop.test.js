const express = require("express");
const Fastify = require("fastify");
const { MemoryStore, SubmitLock } = require("submit-lock");
const { submitGuard } = require("submit-lock/express");
const { submitGuard: fastifyGuard } = require("submit-lock/fastify");
const { submitGuard: fetchGuard } = require("submit-lock/fetch");
const twoClicks = require("./two-clicks.cjs");

const userId = () => "42";
let lock;
beforeEach(() => {
  lock = new SubmitLock({ store: new MemoryStore() });
});
afterEach(() => lock.close());

describe("a second click gets 409 while the first order is placed", () => {
  test("on Express", async () => {
    const statuses = await twoClicks((work) => {
      const placeOrder = submitGuard({ lock, userId }).protect(async (_req, res) => {
        await work();
        res.status(201).end();
      });
      return express().post("/orders", placeOrder);
    });
    expect(statuses).toEqual([201, 409]);
  });

  test("on Fastify", async () => {
    const statuses = await twoClicks(async (work) => {
      const placeOrder = fastifyGuard({ lock, userId }).protect(async (_request, reply) => {
        await work();
        return reply.code(201).send({});
      });
      const app = Fastify();
      app.post("/orders", placeOrder);
      await app.ready();
      return app.routing;
    });
    expect(statuses).toEqual([201, 409]);
  });

  test("with a handler of fetch", async () => {
    const statuses = await twoClicks((work) => {
      const placeOrder = fetchGuard({ lock, userId }).protect(async () => {
        await work();
        return new Response(null, { status: 201 });
      });
      return async ({ method }, res) => {
        const { status } = await placeOrder(new Request("http://shop.test/orders", { method }));
        res.writeHead(status).end();
      };
    });
    expect(statuses).toEqual([201, 409]);
  });
});
