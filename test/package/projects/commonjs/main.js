const express = require("express");
const { Redis } = require("ioredis");
const Koa = require("koa");
const { RedisStore, SubmitLock } = require("submit-lock");
const { submitGuard: expressGuard } = require("submit-lock/express");
const { submitGuard: koaGuard } = require("submit-lock/koa");
const { instrument } = require("submit-lock/opentelemetry");
const twoClicks = require("./two-clicks.cjs");

async function main() {
  const redis = new Redis(process.env.REDIS_URL);
  const lock = new SubmitLock({ store: new RedisStore(redis) });
  const instrumentation = instrument({ locks: [lock] });
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

  instrumentation.disable();
  await lock.close();
  await redis.quit();
  console.log(JSON.stringify({ onExpress, onKoa }));
}

void main();
