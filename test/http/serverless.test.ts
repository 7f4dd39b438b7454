import { bodyParser } from "@koa/bodyparser";
import express5 from "express";
import express4 from "express4";
import Koa3 from "koa";
import Koa2 from "koa2";
import serverless from "serverless-http";
import { afterEach, expect, test } from "vitest";
import * as onExpress from "../../src/express/index.ts";
import { RedisStore, type SubmitLock } from "../../src/index.ts";
import * as onKoa from "../../src/koa/index.ts";
import { freshUser } from "../support/ids.ts";
import { closeLocks, openLock } from "../support/locks.ts";
import { until } from "../support/until.ts";
import { sharedRedis } from "./shop.ts";

afterEach(closeLocks);

interface Guarding {
  readonly lock: SubmitLock;
  readonly userId: () => string;
  readonly idempotency?: object;
}

function express(lib: typeof express5) {
  return (guarding: Guarding) => {
    const guard = onExpress.submitGuard(guarding);
    const place = guard.protect((_req, res) => void res.status(201).json({ placed: true }));
    return lib().use(lib.json()).post("/orders", place);
  };
}

function koa(lib: typeof Koa3) {
  return (guarding: Guarding) =>
    new lib()
      .use(bodyParser())
      .use(onKoa.submitGuard(guarding))
      .use((ctx) => {
        ctx.status = 201;
        ctx.body = { placed: true };
      });
}

const apps = [
  ["Express 4", express(express4 as unknown as typeof express5)],
  ["Express 5", express(express5)],
  ["Koa 2", koa(Koa2 as unknown as typeof Koa3)],
  ["Koa 3", koa(Koa3)],
] as const;

test.each(
  apps.flatMap(([name, app]) => [
    [`${name}, the lock alone`, app, undefined] as const,
    [`${name}, with idempotency`, app, {}] as const,
  ]),
)(
  "in a function of a platform, an order that is answered leaves its user free: %s",
  async (...of) => {
    const [, app, idempotency] = of;
    const [lock, user] = [openLock({ store: new RedisStore(sharedRedis()) }), freshUser()];
    const handle = serverless(
      app({ lock, userId: () => user, ...(idempotency && { idempotency }) }),
    );
    const order = {
      ...{ httpMethod: "POST", path: "/orders", body: "{}", requestContext: {} },
      headers: { "content-type": "application/json", "idempotency-key": "a-key" },
    };
    const answer = await handle(order, {});
    expect(answer).toMatchObject({ statusCode: 201, body: '{"placed":true}' });
    const state = async () => (await lock.inspect(user)).state;
    await until(async () => (await state()) !== "held", { what: "the lease to end" });
    expect(await state()).toBe("free");
    if (idempotency === undefined) return;
    const { headers } = (await handle(order, {})) as { headers: object };
    expect(headers).toMatchObject({ "idempotent-replayed": "true" });
  },
);
