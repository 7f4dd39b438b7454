const express = require("express");
const { createClient } = require("redis");
const { RedisStore, SubmitLock } = require("submit-lock");
const { submitGuard } = require("submit-lock/express");
const twoClicks = require("./two-clicks.cjs");

async function main() {
  const redis = createClient({ url: process.env.REDIS_URL }).on("error", console.error);
  const lock = new SubmitLock({ store: new RedisStore(redis) });
  await redis.connect();
  await lock.check();

  const onExpress = await twoClicks((work) => {
    const guard = submitGuard({ lock, userId: () => process.env.TEST_USER });
    const app = express();
    app.post("/orders", guard, async (_req, res) => {
      await work();
      res.status(201).end();
    });
    return app;
  });

  await lock.close();
  await redis.close();
  console.log(JSON.stringify({ onExpress }));
}

void main();
