import express from "express";
import Fastify from "fastify";
import { Redis } from "ioredis";
import Koa from "koa";
import { createClient, createCluster } from "redis";
import { type Lease, MemoryStore, RedisStore, SubmitLock } from "submit-lock";
import { submitGuard as expressGuard } from "submit-lock/express";
import { submitGuard as fastifyGuard } from "submit-lock/fastify";
import { submitGuard as fetchGuard, leaseOf, submissionOf } from "submit-lock/fetch";
import { submitGuard as koaGuard } from "submit-lock/koa";
import { instrument } from "submit-lock/opentelemetry";

const redis = new Redis({ lazyConnect: true });
const lock = new SubmitLock({ store: new RedisStore(redis), ttlMs: 10_000 });

export const onNodeRedis: readonly RedisStore[] = [
  new RedisStore(createClient({ url: "redis://127.0.0.1:6379", database: 5 })),
  new RedisStore(createCluster({ rootNodes: [{ url: "redis://127.0.0.1:7000" }] })),
];

export const { disable } = instrument({ locks: [lock], spans: false });

const app = express();
const guard = expressGuard({ lock, userId: (req) => req.get("x-user") });
app.post("/orders", guard, (req, res) => {
  const signal: AbortSignal | undefined = req.submitLease?.signal;
  res.json({ aborted: signal?.aborted });
});
app.post(
  "/carts/:cart/orders",
  guard.protect(async (req, res) => {
    const cart: unknown = req.params["cart"];
    res.json({ cart });
  }),
);

const koa = new Koa();
koa.use(koaGuard({ lock, userId: (ctx) => ctx.get("x-user") }));
koa.use(async (ctx) => {
  const lease: Lease = ctx.state.submitLease;
  ctx.body = lease.key;
});

const fastify = Fastify();
const onFastify = fastifyGuard({ lock, userId: ({ ip }) => ip, idempotency: {} });
const placeOrder = onFastify.protect(async (request, reply) => {
  const signal: AbortSignal | undefined = request.submitLease?.signal;
  const id: string | undefined = request.submission?.id;
  // @ts-expect-error a status is a number
  if (signal?.aborted) return reply.code("late");
  return { id };
});
fastify.post("/orders", placeOrder);

const onFetch = fetchGuard({ lock, userId: ({ headers }) => headers.get("x-user") });
/** As a route handler of Next.js is exported. */
export const POST: (request: Request) => Promise<Response> = onFetch.protect(async (request) => {
  const signal: AbortSignal | undefined = leaseOf(request)?.signal;
  return Response.json({ aborted: signal?.aborted, id: submissionOf(request)?.id });
});
// @ts-expect-error a handler of fetch returns a Response
onFetch.protect(async () => "placed");

export async function job(): Promise<string> {
  const local = new SubmitLock({ store: new MemoryStore() });
  const attempt = await local.acquire("42");
  if (attempt.outcome === "acquired") await attempt.lease.release();
  // @ts-expect-error a contended attempt has no lease
  if (attempt.outcome === "contended") attempt.lease;
  return local.withLock("42", { waitMs: 500 }, async (lease) => lease.key);
}
