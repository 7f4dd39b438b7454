import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import express from "express";
import { Redis } from "ioredis";
import multer from "multer";
import type { submitGuard } from "../../../src/express/index.ts";
import type { RedisStore, SubmitLock } from "../../../src/index.ts";

/** A version of the package. */
interface Package {
  readonly RedisStore: typeof RedisStore;
  readonly SubmitLock: typeof SubmitLock;
  readonly submitGuard: typeof submitGuard;
}

/** Serves orders with that version, and sends the parent its port and a number for each order. */
export async function serve({ RedisStore, SubmitLock, submitGuard }: Package): Promise<void> {
  const redis = new Redis(Number(process.argv[2]));
  const lock = new SubmitLock({ store: new RedisStore(redis), ttlMs: 2_000 });
  await lock.check();
  const userId = (req: express.Request) => req.get("x-user");
  const guard = submitGuard({ lock, userId, idempotency: {} });
  const app = express();
  let orders = 0;
  const place = guard.protect(async (req, res) => {
    process.send?.({ order: ++orders });
    await sleep(Number(req.get("x-ms") ?? 0));
    res.status(201).json({ by: process.pid, order: orders });
  });
  app.post("/orders", express.json(), place);
  app.post("/uploads", multer().any(), place);
  const server = app.listen(0, "127.0.0.1");
  await once(server, "listening");
  process.send?.({ port: (server.address() as AddressInfo).port });
}
