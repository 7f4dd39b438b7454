import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { getRequestListener } from "@hono/node-server";
import express, { type RequestHandler } from "express";
import fastify, { type FastifyReply, type FastifyRequest } from "fastify";
import { Redis } from "ioredis";
import Koa, { type Middleware } from "koa";
import { ProcessorTime, packageAt, pin, serve } from "./worker.ts";

/** What is in front of the order route. `once` has a submission id. */
export type Variant = "bare" | "one PING" | "hand-written" | "guard" | "protect" | "once";

export interface ShopSetup {
  readonly tree: string;
  readonly framework: "Express" | "Koa" | "Fastify" | "fetch";
  readonly variant: Variant;
  readonly redisPort: number;
}

const ttlMs = 10_000;
const { framework, redisPort, tree, variant } = JSON.parse(process.argv[2] as string) as ShopSetup;
pin(0);
const redis = new Redis(redisPort, "127.0.0.1");
redis.defineCommand("deleteIfMine", {
  numberOfKeys: 1,
  lua: 'if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end return 0',
});
const shops = { Express: expressShop, Koa: koaShop, Fastify: fastifyShop, fetch: fetchShop };
const listener = await shops[framework]();
const server = createServer(listener).listen(0, "127.0.0.1");
await once(server, "listening");
const { port } = server.address() as AddressInfo;
const processor = new ProcessorTime();
// The processor time, in µs, since it was asked last; and the port.
serve(async () => ({ micros: processor.take(), port }));

/** The options of a guard, but for its user. */
async function guardOptions() {
  const { RedisStore, SubmitLock } = await packageAt<typeof import("submit-lock")>(tree);
  const lock = new SubmitLock({ store: new RedisStore(redis), ttlMs });
  return { lock, idempotency: variant === "once" ? {} : undefined };
}

/** One round trip to Redis, and then the handler. */
function behindPing<Args extends unknown[], Answer>(handler: (...args: Args) => Promise<Answer>) {
  return async (...args: Args) => {
    await redis.ping();
    return await handler(...args);
  };
}

/** What one writes in a few lines: nothing is confirmed, extended or bounded. */
async function handWritten(user: string, ended: (listener: () => void) => void): Promise<boolean> {
  const key = `lock:submit:${user}`;
  const ownerId = randomUUID();
  if ((await redis.set(key, ownerId, "PX", ttlMs, "NX")) !== "OK") return false;
  const { deleteIfMine } = redis as unknown as {
    deleteIfMine(...args: string[]): Promise<unknown>;
  };
  ended(() => void deleteIfMine.call(redis, key, ownerId).catch(() => {}));
  return true;
}

/** The order does nothing but answer: the framework and the lock take the rest. */
async function expressShop(): Promise<RequestListener> {
  const app = express();
  const placeOrder: RequestHandler = async (_req, res) =>
    void res.status(201).json({ placed: true });
  app.post("/orders", ...(await inFrontOf(placeOrder)));
  return app as RequestListener;
}

async function inFrontOf(handler: RequestHandler): Promise<RequestHandler[]> {
  if (variant === "bare") return [handler];
  if (variant === "one PING") {
    return [async (_req, _res, next) => void redis.ping().then(() => next(), next), handler];
  }
  if (variant === "hand-written") {
    const lock: RequestHandler = (req, res, next) => {
      const taken = handWritten(req.get("x-user-id") ?? "", (ended) => res.once("finish", ended));
      taken.then((isOurs) => (isOurs ? next() : res.sendStatus(409)), next);
    };
    return [lock, handler];
  }
  const { submitGuard } = await packageAt<typeof import("submit-lock/express")>(
    tree,
    "express/index.js",
  );
  const guard = submitGuard({ ...(await guardOptions()), userId: (req) => req.get("x-user-id") });
  return variant === "guard" ? [guard, handler] : [guard.protect(handler)];
}

async function koaShop(): Promise<RequestListener> {
  const app = new Koa();
  const lock = await koaLock();
  if (lock !== undefined) app.use(lock);
  app.use(async (ctx) => {
    ctx.status = 201;
    ctx.body = { placed: true };
  });
  return app.callback() as RequestListener;
}

async function koaLock(): Promise<Middleware | undefined> {
  if (variant === "bare") return undefined;
  if (variant === "one PING") return async (_ctx, next) => void (await redis.ping().then(next));
  if (variant === "hand-written") {
    return async (ctx, next) => {
      const ended = (listener: () => void) => void ctx.res.once("finish", listener);
      if (await handWritten(ctx.get("x-user-id"), ended)) await next();
      else ctx.status = 409;
    };
  }
  const { submitGuard } = await packageAt<typeof import("submit-lock/koa")>(tree, "koa/index.js");
  return submitGuard({ ...(await guardOptions()), userId: (ctx) => ctx.get("x-user-id") });
}

async function fastifyShop(): Promise<RequestListener> {
  const app = fastify();
  const placeOrder = async (_request: FastifyRequest, reply: FastifyReply) => {
    reply.code(201);
    return { placed: true };
  };
  app.post("/orders", await fastifyLock(placeOrder));
  await app.ready();
  return app.routing as RequestListener;
}

type FastifyHandler = (request: FastifyRequest, reply: FastifyReply) => Promise<unknown>;

async function fastifyLock(handler: FastifyHandler): Promise<FastifyHandler> {
  if (variant === "bare") return handler;
  if (variant === "one PING") return behindPing(handler);
  const userId = (request: FastifyRequest) => `${request.headers["x-user-id"]}`;
  if (variant === "hand-written") {
    return async (request, reply) => {
      const ended = (listener: () => void) => void reply.raw.once("finish", listener);
      if (await handWritten(userId(request), ended)) return await handler(request, reply);
      reply.code(409);
      return {};
    };
  }
  const { submitGuard } = await packageAt<typeof import("submit-lock/fastify")>(
    tree,
    "fastify/index.js",
  );
  return submitGuard({ ...(await guardOptions()), userId }).protect(handler);
}

type FetchHandler = (request: Request) => Promise<Response>;

/** A handler of fetch, on Node. */
async function fetchShop(): Promise<RequestListener> {
  const placeOrder = async () => Response.json({ placed: true }, { status: 201 });
  return getRequestListener(await fetchLock(placeOrder)) as RequestListener;
}

async function fetchLock(handler: FetchHandler): Promise<FetchHandler> {
  if (variant === "bare") return handler;
  if (variant === "one PING") return behindPing(handler);
  const userId = (request: Request) => request.headers.get("x-user-id") ?? "";
  if (variant === "hand-written") {
    return async (request) => {
      let end = () => {};
      const isOurs = await handWritten(userId(request), (listener) => {
        end = listener;
      });
      if (!isOurs) return new Response(null, { status: 409 });
      return await handler(request).finally(end);
    };
  }
  const { submitGuard } = await packageAt<typeof import("submit-lock/fetch")>(
    tree,
    "fetch/index.js",
  );
  return submitGuard({ ...(await guardOptions()), userId }).protect(handler);
}
