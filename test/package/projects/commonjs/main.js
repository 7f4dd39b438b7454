const express = require("express");
const Fastify = require("fastify");
const { Redis } = require("ioredis");
const Koa = require("koa");
const { RedisStore, SubmitLock } = require("submit-lock");
const { submitGuard: expressGuard } = require("submit-lock/express");
const { submitGuard: fastifyGuard } = require("submit-lock/fastify");
const { submitGuard: fetchGuard } = require("submit-lock/fetch");
const { submitGuard: koaGuard } = require("submit-lock/koa");
const { instrument } = require("submit-lock/opentelemetry");
const { SubmissionTable } = require("submit-lock/sql");
const twoClicks = require("./two-clicks.cjs");

async function main() {
  const redis = new Redis(process.env.REDIS_URL);
  const lock = new SubmitLock({ store: new RedisStore(redis) });
  const instrumentation = instrument({ locks: [lock] });
  if (!new SubmissionTable().ddl) throw new Error("no table");
  const userId = () => process.env.TEST_USER;

  const onExpress = await twoClicks((work) => {
    const app = express();
    app.post("/orders", expressGuard({ lock, userId }), async (_req, res) => {
      await work();
      res.status(201).end();
    });
    return app;
  });

  const onKoa = await twoClicks((work) => {
    const app = new Koa();
    app.use(koaGuard({ lock, userId }));
    app.use(async (ctx) => {
      await work();
      ctx.status = 201;
    });
    return app.callback();
  });

  const onFastify = await twoClicks(async (work) => {
    const app = Fastify();
    const placeOrder = fastifyGuard({ lock, userId }).protect(async (_request, reply) => {
      await work();
      return reply.code(201).send({});
    });
    app.post("/orders", placeOrder);
    await app.ready();
    return app.routing;
  });

  const onFetch = await twoClicks((work) => {
    const placeOrder = fetchGuard({ lock, userId }).protect(async () => {
      await work();
      return new Response(null, { status: 201 });
    });
    return async ({ method }, res) => {
      const { status } = await placeOrder(new Request("http://shop.test/orders", { method }));
      res.writeHead(status).end();
    };
  });

  instrumentation.disable();
  await lock.close();
  redis.disconnect();
  console.log(JSON.stringify({ onExpress, onKoa, onFastify, onFetch }));
}

void main();
