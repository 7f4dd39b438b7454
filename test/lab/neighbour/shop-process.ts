import { randomUUID } from "node:crypto";
import type { AddressInfo } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import express, { type RequestHandler } from "express";
import { Cluster, Redis } from "ioredis";
import { createClient, createCluster } from "redis";
import { submitGuard } from "../../../src/express/index.ts";
import { RedisStore, SubmitLock } from "../../../src/index.ts";

/** How the shop protects its orders: by the guard, by nothing, or by the lock that shops write first. */
export type Route = "guard" | "bare" | "hand-written";

export interface FromShop {
  readonly port?: number;
  readonly waiting?: number;
}

const [ports = "", route = "guard", library = "ioredis"] = process.argv.slice(2);
const nodes = ports.split(",").map((port) => ({ host: "127.0.0.1", port: Number(port) }));
const [first] = nodes as [{ host: string; port: number }];

async function open() {
  if (library === "ioredis") return nodes.length > 1 ? new Cluster(nodes) : new Redis(first);
  const url = ({ port }: { port: number }) => `redis://127.0.0.1:${port}`;
  const rootNodes = nodes.map((node) => ({ url: url(node) }));
  const client =
    nodes.length > 1 ? createCluster({ rootNodes }) : createClient({ url: url(first) });
  client.on("error", () => {});
  await client.connect();
  return client;
}

const client = await open();
const lock = new SubmitLock({ store: new RedisStore(client as Redis) });
const userId = (req: express.Request) => req.get("x-user");

const guards: Record<Route, RequestHandler> = {
  guard: submitGuard({ lock, userId, idempotency: { maxBodyBytes: 1_048_576 } }),
  bare: (_req, _res, next) => next(),
  "hand-written": (req, res, next) => {
    const [key, value] = [`hand:${userId(req)}`, randomUUID()];
    const redis = client as Redis;
    redis.set(key, value, "PX", 10_000, "NX").then((taken) => {
      if (taken === null) return void res.sendStatus(409);
      const release = "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1])";
      res.once("close", () => void redis.eval(release, 1, key, value).catch(() => {}));
      next();
    }, next);
  },
};

const app = express();
app.use(express.json({ limit: "2mb" }));
app.post("/orders", guards[route as Route], async (req, res) => {
  const { bytes = 300, holdMs = 20, text = "x" } = req.body;
  await sleep(holdMs);
  res.status(201).json({ text: text.repeat(bytes) });
});

const server = app.listen(0, "127.0.0.1", () => {
  process.send?.({ port: (server.address() as AddressInfo).port } satisfies FromShop);
});
server.maxConnections = 10_000;
let waiting = 0;
setInterval(() => {
  waiting = Math.max(waiting, lock.stats().waiting);
}, 50);
process.on("message", () => process.send?.({ waiting } satisfies FromShop));
