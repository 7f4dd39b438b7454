import express from "express";
import { createClient, createClientPool, createCluster } from "redis";
import { RedisStore, SubmitLock } from "submit-lock";
import { submitGuard } from "submit-lock/express";

const redis = createClient({ url: "redis://127.0.0.1:6379", database: 5 });
redis.on("error", (error: Error) => console.error(error.message));
const lock = new SubmitLock({ store: new RedisStore(redis) });

const cluster = createCluster({ rootNodes: [{ url: "redis://127.0.0.1:7000" }] });
export const others: readonly RedisStore[] = [
  new RedisStore(cluster, { ackReplicas: 1 }),
  new RedisStore(createClient({ RESP: 2, keyPrefix: "shop:" })),
];

export function refused(): void {
  // @ts-expect-error a pool has no one connection
  new RedisStore(createClientPool({}));
}

const guard = submitGuard({ lock, userId: (req) => req.get("x-user") });
const app = express();
app.post(
  "/orders",
  guard.protect(async (req, res) => {
    const signal: AbortSignal | undefined = req.submitLease?.signal;
    res.status(signal?.aborted === false ? 201 : 500).end();
  }),
);
