import express from "express";
import Fastify from "fastify";
import { Redis } from "ioredis";
import Koa from "koa";
import { RedisStore, SubmitLock } from "submit-lock";
import { submitGuard as expressGuard } from "submit-lock/express";
import { submitGuard as fastifyGuard } from "submit-lock/fastify";
import { submitGuard as fetchGuard, leaseOf } from "submit-lock/fetch";
import { submitGuard as koaGuard } from "submit-lock/koa";
import { instrument } from "submit-lock/opentelemetry";
import twoClicks from "./two-clicks.cjs";

const redis = new Redis(process.env.REDIS_URL);
const lock = new SubmitLock({ store: new RedisStore(redis) });
const instrumentation = instrument({ locks: [lock] });
const userId = () => process.env.TEST_USER;

const onExpress = await twoClicks((work) => {
  const guard = expressGuard({ lock, userId });
  const app = express();
  app.post(
    "/orders",
    guard.protect(async (req, res) => {
      await work();
      res.status(req.submitLease.signal.aborted ? 500 : 201).end();
    }),
  );
  return app;
});

const onKoa = await twoClicks((work) => {
  const app = new Koa();
  app.use(koaGuard({ lock, userId }));
  app.use(async (ctx) => {
    await work();
    ctx.status = ctx.state.submitLease.signal.aborted ? 500 : 201;
  });
  return app.callback();
});

const onFastify = await twoClicks(async (work) => {
  const app = Fastify();
  const placeOrder = fastifyGuard({ lock, userId }).protect(async (request, reply) => {
    await work();
    return reply.code(request.submitLease.signal.aborted ? 500 : 201).send({});
  });
  app.post("/orders", placeOrder);
  await app.ready();
  return app.routing;
});

const onFetch = await twoClicks((work) => {
  const placeOrder = fetchGuard({ lock, userId }).protect(async (request) => {
    await work();
    return new Response(null, { status: leaseOf(request).signal.aborted ? 500 : 201 });
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
