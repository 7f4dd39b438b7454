import process from "node:process";
import express from "express";
import { Redis } from "ioredis";
import { RedisStore, SubmitLock } from "submit-lock";
import { submitGuard } from "submit-lock/express";

const { PAYMENTS_URL, PORT, REDIS_URL } = process.env;

// A function, as a bundle in CommonJS has no `await` outside of one.
async function main() {
  const lock = new SubmitLock({ store: new RedisStore(new Redis(REDIS_URL)) });
  await lock.check({ submissions: true });
  const guard = submitGuard({
    lock,
    userId: (req) => req.get("x-user-id"),
    idempotency: {},
  });

  const app = express();
  app.use(express.json());
  app.post(
    "/orders",
    guard.protect(async (req, res) => {
      const { signal } = req.submitLease;
      const paid = await fetch(PAYMENTS_URL, { method: "POST", signal });
      res.status(201).json(await paid.json());
    }),
  );
  app.listen(Number(PORT), "127.0.0.1");
}

void main();
