import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
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
import { Redis } from "ioredis";
import Koa, { type Middleware } from "koa";
import { RedisStore, SubmitLock } from "submit-lock";
import { type SubmitGuardOptions, submitGuard } from "submit-lock/express";
import { submitGuard as submitGuardOnKoa } from "submit-lock/koa";
import { instrument } from "submit-lock/opentelemetry";
import { ttlMs, withDeleteIfMine } from "../locker.ts";
import { beginProfile, ownShare, serveJobs } from "../process/serve.ts";
import { loadScripts, openScriptsAlone } from "../scripts-alone.ts";
import type { ServerHello, ServerJob, Variant } from "./processes.ts";

/** What one writes in twenty lines: nothing is confirmed, extended or bounded. */
function expressLock(client: Redis): RequestHandler {
  const redis = withDeleteIfMine(client);
  return async (req, res, next) => {
    const key = `lock:submit:${req.get("x-user-id")}`;
    const ownerId = randomUUID();
    try {
      if ((await redis.set(key, ownerId, "PX", ttlMs, "NX")) !== "OK") {
        res.status(409).json({ error: "Another submission of yours is being processed." });
        return;
      }
    } catch (error) {
      next(error);
      return;
    }
    res.once("finish", () => {
      redis.deleteIfMine(key, ownerId).catch(() => {});
    });
    next();
  };
}

/** The same for Koa. The release is not awaited: the answer does not wait for it either. */
function koaLock(client: Redis): Middleware {
  const redis = withDeleteIfMine(client);
  return async (ctx, next) => {
    const key = `lock:submit:${ctx.get("x-user-id")}`;
    const ownerId = randomUUID();
    if ((await redis.set(key, ownerId, "PX", ttlMs, "NX")) !== "OK") {
      ctx.status = 409;
      ctx.body = { error: "Another submission of yours is being processed." };
      return;
    }
    ctx.res.once("finish", () => {
      redis.deleteIfMine(key, ownerId).catch(() => {});
    });
    await next();
  };
}

/** The limit: what submit-lock sends, and nothing around it. All its users are others, so it knows no 409. */
function expressScripts(client: Redis): RequestHandler {
  void loadScripts(client);
  const scripts = openScriptsAlone(client);
  return async (req, res, next) => {
    try {
      const hold = await scripts.acquire(req.get("x-user-id") ?? "");
      res.once("finish", () => {
        scripts.release(hold).catch(() => {});
      });
    } catch (error) {
      next(error);
      return;
    }
    next();
  };
}

function koaScripts(client: Redis): Middleware {
  void loadScripts(client);
  const scripts = openScriptsAlone(client);
  return async (ctx, next) => {
    const hold = await scripts.acquire(ctx.get("x-user-id"));
    ctx.res.once("finish", () => {
      scripts.release(hold).catch(() => {});
    });
    await next();
  };
}

/** The order does nothing but answer: whatever a request takes is the framework's and the lock's. */
function expressApp(variant: Variant, redis: Redis): RequestListener {
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

function koaApp(variant: Variant, redis: Redis): RequestListener {
  const app = new Koa();
  const inFront = middleware(variant, redis);
  if (inFront !== undefined) app.use(inFront);
  app.use(async (ctx) => {
    ctx.status = 201;
    ctx.body = { placed: true };
  });
  return app.callback() as RequestListener;
}

function middleware(variant: Variant, redis: Redis): Middleware | undefined {
  const guard = (once: Pick<SubmitGuardOptions, "idempotency"> = {}) => {
    const lock = new SubmitLock({ store: new RedisStore(redis), ttlMs });
    return submitGuardOnKoa({ lock, userId: (ctx) => ctx.get("x-user-id"), ...once });
  };
  switch (variant) {
    case "bare":
      return undefined;
    case "ping":
      return async (_ctx, next) => {
        await redis.ping();
        await next();
      };
    case "hand-written":
      return koaLock(redis);
    case "scripts":
      return koaScripts(redis);
    case "guard":
      return guard();
    case "once":
      return guard({ idempotency: {} });
    case "protect":
    case "measured":
    case "traced":
      throw new Error(`${variant} is measured on Express alone`);
  }
}

/** One route in a process of its own. Arguments: framework, variant, the port of Redis. */
const [framework, variant, redisPort] = process.argv.slice(2);
const redis = new Redis(Number(redisPort), "127.0.0.1");
await redis.ping();
const app = framework === "Koa" ? koaApp : expressApp;
const server = createServer(app(variant as Variant, redis)).listen(0, "127.0.0.1");
await once(server, "listening");

let cpu = process.cpuUsage();
serveJobs<ServerJob, number, ServerHello>(
  { port: (server.address() as AddressInfo).port },
  async ({ kind }) => {
    if (kind === "own-share") return ownShare();
    if (kind === "profile") await beginProfile();
    const { user, system } = process.cpuUsage(cpu);
    cpu = process.cpuUsage();
    return user + system;
  },
);
