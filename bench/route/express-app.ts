import type { RequestListener } from "node:http";
import { context } from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from "@opentelemetry/sdk-metrics";
import {
  BasicTracerProvider,
  BatchSpanProcessor,
  type SpanExporter,
} from "@opentelemetry/sdk-trace-base";
import express, { type RequestHandler } from "express";
import type { Redis } from "ioredis";
import { RedisStore, SubmitLock } from "submit-lock";
import { type SubmitGuardOptions, submitGuard } from "submit-lock/express";
import { instrument } from "submit-lock/opentelemetry";
import { ttlMs } from "../locker.ts";
import { expressLock, expressScripts } from "./hand-written.ts";
import type { Variant } from "./variants.ts";

/** The order does nothing but answer: whatever a request takes is the framework's and the lock's. */
export function expressApp(variant: Variant, redis: Redis): RequestListener {
  const app = express();
  const placeOrder: RequestHandler = async (_req, res) => {
    res.status(201).json({ placed: true });
  };
  app.post("/orders", ...stack(variant, redis, placeOrder));
  return app as RequestListener;
}

function stack(variant: Variant, redis: Redis, handler: RequestHandler): RequestHandler[] {
  const lock = new SubmitLock({ store: new RedisStore(redis), ttlMs });
  const guard = (once: Pick<SubmitGuardOptions, "idempotency"> = {}) =>
    submitGuard({ lock, userId: (req) => req.get("x-user-id"), ...once });
  switch (variant) {
    case "bare":
      return [handler];
    case "ping":
      return [async (_req, _res, next) => void redis.ping().then(() => next(), next), handler];
    case "hand-written":
      return [expressLock(redis), handler];
    case "scripts":
      return [expressScripts(redis), handler];
    case "guard":
      return [guard(), handler];
    case "protect":
      return [guard().protect(handler)];
    case "once":
      return [guard({ idempotency: {} }).protect(handler)];
    case "measured":
    case "traced":
      observe(lock, variant === "traced");
      return [guard().protect(handler)];
  }
}

/** Takes every batch, and keeps none. */
const nowhere: SpanExporter = {
  export: (_spans, done) => done({ code: 0 }),
  shutdown: () => Promise.resolve(),
};

/** What a shop does that exports metrics, and one that records every span as well. */
function observe(lock: SubmitLock, withSpans: boolean): void {
  const exporter = new InMemoryMetricExporter(AggregationTemporality.DELTA);
  const reader = new PeriodicExportingMetricReader({ exporter, exportIntervalMillis: 10_000 });
  const meterProvider = new MeterProvider({ readers: [reader] });
  if (!withSpans) {
    instrument({ locks: [lock], meterProvider });
    return;
  }
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  const tracerProvider = new BasicTracerProvider({
    spanProcessors: [new BatchSpanProcessor(nowhere)],
  });
  instrument({ locks: [lock], meterProvider, tracerProvider });
}
