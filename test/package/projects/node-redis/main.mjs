import express from "express";
import { createClient } from "redis";
import { RedisStore, SubmitLock } from "submit-lock";
import { submitGuard } from "submit-lock/express";
import twoClicks from "./two-clicks.cjs";

const redis = await createClient({ url: process.env.REDIS_URL })
  .on("error", console.error)
  .connect();
const lock = new SubmitLock({ store: new RedisStore(redis) });
await lock.check();

const onExpress = await twoClicks((work) => {
  const guard = submitGuard({ lock, userId: () => process.env.TEST_USER });
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

await lock.close();
await redis.close();
console.log(JSON.stringify({ onExpress }));
