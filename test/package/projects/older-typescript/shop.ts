import type { RequestListener } from "node:http";
import express, { type RequestHandler } from "express";
import Fastify, { type FastifyReply, type FastifyRequest } from "fastify";
import { Redis } from "ioredis";
import Koa from "koa";
import { createClient } from "redis";
import { type Lease, RedisStore, SubmitLock } from "submit-lock";
import { submitGuard as expressGuard } from "submit-lock/express";
import { submitGuard as fastifyGuard } from "submit-lock/fastify";
import { submitGuard as fetchGuard, leaseOf } from "submit-lock/fetch";
import { submitGuard as koaGuard } from "submit-lock/koa";
import { instrument } from "submit-lock/opentelemetry";
import { type SqlExecutor, SubmissionTable } from "submit-lock/sql";

export const inTransaction = (tx: SqlExecutor): Promise<{ value: number }> =>
  new SubmissionTable().once(tx, undefined, () => 1);

type Listening = (work: () => Promise<void>) => RequestListener | Promise<RequestListener>;
const twoClicks: (shop: Listening) => Promise<number[]> = require("./two-clicks.cjs");

async function main(): Promise<void> {
  const redis = new Redis(process.env["REDIS_URL"] ?? "");
  const lock = new SubmitLock({ store: new RedisStore(redis) });
  const nodeRedis = createClient({ url: process.env["REDIS_URL"] ?? "" }).on(
    "error",
    console.error,
  );
  const other = new SubmitLock({ store: new RedisStore(nodeRedis) });
  await nodeRedis.connect();
  await other.check();
  const instrumentation = instrument({ locks: [lock] });
  const userId = () => process.env["TEST_USER"];

  const onExpress = await twoClicks((work) => {
    const app = express();
    const guard = expressGuard({ lock, userId });
    // With its type: a compiler before 5.9 does not find the route's types for an inline handler.
    const placeOrder: RequestHandler<{ cart: string }> = async (req, res) => {
      await work();
      const lease: Lease | undefined = req.submitLease;
      res.status(lease?.signal.aborted === false && req.params.cart ? 201 : 500).end();
    };
    app.post("/:cart", guard.protect(placeOrder));
    return app;
  });

  // These are compiled, and loaded; the other projects run them.
  const app = new Koa();
  app.use(koaGuard({ lock, userId }));
  app.use((ctx) => {
    const lease: Lease = ctx.state.submitLease;
    ctx.status = lease.signal.aborted ? 500 : 201;
  });
  const onFastify = async (request: FastifyRequest, reply: FastifyReply) => {
    const lease: Lease | undefined = request.submitLease;
    return await reply.code(lease?.signal.aborted === false ? 201 : 500).send({});
  };
  Fastify().post("/orders", fastifyGuard({ lock, userId }).protect(onFastify));
  fetchGuard({ lock, userId }).protect(async (request: Request) => {
    const lease: Lease | undefined = leaseOf(request);
    return new Response(null, { status: lease?.signal.aborted === false ? 201 : 500 });
  });

  instrumentation.disable();
  await lock.close();
  redis.disconnect();
  await other.close();
  await nodeRedis.close();
  console.log(JSON.stringify({ onExpress }));
}

void main();
