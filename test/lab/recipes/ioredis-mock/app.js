import express from "express";
import { submitGuard } from "submit-lock/express";

/** The shop on whatever it is given: ioredis or its mock for the carts, and a lock. */
export function createApp({ redis, lock, pay }) {
  const app = express();
  app.use(express.json());
  const guard = submitGuard({ lock, userId: (req) => req.get("x-user-id"), idempotency: {} });
  app.post(
    "/orders",
    guard.protect(async (req, res) => {
      const paid = await pay(req.submitLease.signal);
      const orders = await redis.rpush(`orders:${req.get("x-user-id")}`, JSON.stringify(paid));
      res.status(201).json({ ...paid, orders });
    }),
  );
  return app;
}
