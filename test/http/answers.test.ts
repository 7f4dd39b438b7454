import express5, { type ErrorRequestHandler } from "express";
import express4 from "express4";
import supertest from "supertest";
import { describe, expect, test } from "vitest";
import { submitGuard as expressGuard, type SubmitGuardOptions } from "../../src/express/index.ts";
import { MemoryStore, SubmitLock } from "../../src/index.ts";
import { type Framework, newest } from "./frameworks.ts";
import { compressionLayer } from "./layers.ts";
import { openShop, type Shop } from "./shop.ts";
import type { Turn } from "./turn.ts";

const handler = (turn: Turn) => turn.answer(201, { order: "placed" });

function submit(shop: Shop, user: string | undefined) {
  const request = supertest(`http://127.0.0.1:${shop.port}`).post("/orders");
  return user === undefined ? request : request.set("x-user", user);
}

describe.each(newest)("$name", (framework: Framework) => {
  test("a refusal is readable under compression", async () => {
    const shop = await openShop({ framework, handler, outside: [compressionLayer()] });
    const reply = await submit(shop, undefined);
    expect([reply.status, reply.body.code]).toEqual([401, "submit_anonymous"]);
  });

  test.each([
    ["a skip", () => true, 201],
    ["an async skip", async () => true, 201],
    ["a skip that says no", async () => false, 401],
  ])("with %s the answer is as it says", async (_how, skip, status) => {
    const shop = await openShop({ framework, handler, guard: { skip } });
    expect((await submit(shop, undefined)).status).toBe(status);
  });

  test("a lock that was closed answers 503", async () => {
    const shop = await openShop({ framework, handler });
    await shop.lock.close();
    const reply = await submit(shop, shop.user);
    expect([reply.status, reply.body.code]).toEqual([503, "submit_unavailable"]);
  });
});

/** Has made no attempt: a request without a user comes to none. */
const lock = new SubmitLock({ store: new MemoryStore() });
const userId = () => undefined;

const mounts = ([4, 5] as const).flatMap((major) =>
  (["guard", "protect"] as const).map((mount) => ({ major, mount })),
);

describe.each(mounts)("an answer function on Express $major, $mount,", ({ major, mount }) => {
  async function submit(onAnonymous: SubmitGuardOptions["onAnonymous"]) {
    const seen = { ran: 0, errors: [] as unknown[] };
    const guard = expressGuard({ lock, userId, onAnonymous });
    const app = major === 4 ? express4() : express5();
    const handler: express5.RequestHandler = (_req, res) => {
      seen.ran++;
      res.status(201).end();
    };
    if (mount === "guard") app.post("/orders", guard, handler);
    else app.post("/orders", guard.protect(handler));
    app.use(handler);
    const failed: ErrorRequestHandler = (error, _req, res, _next) => {
      seen.errors.push(error);
      if (!res.headersSent) res.status(500).end();
    };
    app.use(failed);
    return { seen, reply: await supertest(app).post("/orders") };
  }

  test("that passes an error to next reaches the error handler", async () => {
    const error = new Error("theirs");
    const { seen, reply } = await submit(async (_req, _res, next) => next(error));
    expect([reply.status, seen]).toEqual([500, { ran: 0, errors: [error] }]);
  });

  test.each([undefined, null, "route", "router"])(
    "that calls next(%j), or rejects with it, starts no handler",
    async (value) => {
      const called = await submit((_req, _res, next) => next(value));
      expect(called.reply.status).toBe(500);
      const errors = [{ code: "SUBMIT_LOCK_ANSWERED_TWICE" }];
      expect(called.seen).toMatchObject({ ran: 0, errors });
      const rejected = await submit(() => Promise.reject(value));
      expect(rejected.reply.status).toBe(500);
      expect(rejected.seen).toEqual({ ran: 0, errors: [expect.any(Error)] });
    },
  );

  test("that calls next() after its answer starts no handler", async () => {
    const { seen, reply } = await submit((_req, res, next) => {
      res.status(418).end();
      (next as () => void)();
    });
    expect(reply.status).toBe(418);
    expect(seen).toMatchObject({ ran: 0, errors: [{ code: "SUBMIT_LOCK_ANSWERED_TWICE" }] });
  });
});
