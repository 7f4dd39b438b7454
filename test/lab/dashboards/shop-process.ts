import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { setTimeout as work } from "node:timers/promises";
import { PrometheusExporter } from "@opentelemetry/exporter-prometheus";
import { MeterProvider } from "@opentelemetry/sdk-metrics";
import express from "express";
import { Redis } from "ioredis";
import { submitGuard } from "../../../src/express/index.ts";
import { RedisStore, SubmitLock } from "../../../src/index.ts";
import { instrument } from "../../../src/opentelemetry/index.ts";

/**
 * A shop that Prometheus scrapes. Arguments: the port of Redis, and the port to be scraped at. Its
 * bounds are a tenth of the defaults, so that an outage of seconds has every consequence.
 */
const [redisPort, metricsPort] = process.argv.slice(2).map(Number);
const exporter = new PrometheusExporter({ host: "127.0.0.1", port: metricsPort as number });
const meterProvider = new MeterProvider({ readers: [exporter] });
const redis = new Redis(redisPort as number, "127.0.0.1");
redis.on("error", () => {});
const lock = new SubmitLock({
  store: new RedisStore(redis),
  ttlMs: 1_000,
  maxHoldMs: 6_000,
  acquireTimeoutMs: 400,
  commandTimeoutMs: 100,
});
instrument({ locks: [lock], meterProvider });

const app = express();
app.use(express.json());
const options = { lock, userId: (req: express.Request) => req.get("x-user-id") };
const placeOrder: express.RequestHandler = async (req, res) => {
  await work(Number(req.get("x-work-ms") ?? 5));
  res.status(201).json({ placed: true });
};
// An outage of 8 s is longer than an answer is kept, so it is given up.
const idempotency = { retainMs: 6_000 };
app.post("/orders", submitGuard({ ...options, idempotency }).protect(placeOrder));
app.post("/refunds", submitGuard(options).protect(placeOrder));
const server = app.listen(0, "127.0.0.1");
await once(server, "listening");
process.on("disconnect", () => process.exit());
process.send?.({ port: (server.address() as AddressInfo).port });
