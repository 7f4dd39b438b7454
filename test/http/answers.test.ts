import express5, { type ErrorRequestHandler } from "express";
import express4 from "express4";
import supertest from "supertest";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { submitGuard as expressGuard, type SubmitGuardOptions } from "../../src/express/index.ts";
import { MemoryStore, SubmitLock } from "../../src/index.ts";
import { ioredis6 } from "../support/clients.ts";
import { freePort } from "../support/free-port.ts";
import { acquired } from "../support/locks.ts";
import { type Framework, newest } from "./frameworks.ts";
import { compressionLayer, layerThatWaits } from "./layers.ts";
import { openShop, type Shop, type ShopOptions } from "./shop.ts";
import type { Turn } from "./turn.ts";

let logged: unknown[] = [];
beforeEach(() => {
  logged = [];
  vi.spyOn(console, "error").mockImplementation((...args) => void logged.push(args));
});
afterEach(() => {
  vi.restoreAllMocks();
});

const handler = (turn: Turn) => turn.answer(201, { order: "placed" });

/** What a CORS middleware would have set before. */
const cors = layerThatWaits(async (_req, res) => {
  res.setHeader("access-control-allow-origin", "https://shop.example");
});

const refusals = [
  {
    status: 401,
    code: "submit_anonymous",
    retryAfter: undefined,
    open: async (options: ShopOptions) => ({ shop: await openShop(options), user: undefined }),
  },
  {
    status: 409,
    code: "submit_contended",
    retryAfter: "1",
    open: async (options: ShopOptions) => {
      const shop = await openShop(options);
      acquired(await shop.lock.acquire(shop.user));
      return { shop, user: shop.user };
    },
  },
  {
    status: 503,
    code: "submit_unavailable",
    retryAfter: "1",
    open: async (options: ShopOptions) => {
      const redis = ioredis6.connect(await freePort());
      const shop = await openShop({
        ...options,
        redis,
        times: { acquireTimeoutMs: 60, commandTimeoutMs: 30 },
      });
      return { shop, user: shop.user };
    },
  },
];

function submit(shop: Shop, user: string | undefined, method: "post" | "head" | "options") {
  const request = supertest(`http://127.0.0.1:${shop.port}`)[method]("/orders");
  return user === undefined ? request : request.set("x-user", user);
}

describe.each(newest)("$name", (framework: Framework) => {
  test.each(refusals)(
    "$status keeps the headers set before, and reaches no error handler, log or order",
    async ({ status, code, retryAfter, open }) => {
      const { shop, user } = await open({ framework, handler, outside: [cors] });
      const { headers, text, ...reply } = await submit(shop, user, "post");
      expect(reply.status).toBe(status);
      expect(headers["content-type"]).toMatch(/^application\/problem\+json/);
      expect(headers["retry-after"]).toBe(retryAfter);
      expect(headers["cache-control"]).toBe("no-store");
      expect(headers["access-control-allow-origin"]).toBe("https://shop.example");
      expect(headers["content-length"]).toBe(String(Buffer.byteLength(text)));
      expect(JSON.parse(text)).toMatchObject({ status, code });

      const head = await submit(shop, user, "head");
      expect([head.status, head.text || ""]).toEqual([status, ""]);
      const names = ["content-type", "retry-after"];
      // On fetch, the platform counts the body, and a HEAD has none.
      if (framework.family !== "fetch") names.push("content-length");
      for (const name of names) expect(head.headers[name]).toBe(headers[name]);
      expect([shop.errors, logged, shop.work.started]).toEqual([[], [], 0]);
      // A preflight is no submit.
      expect((await submit(shop, user, "options")).status).toBe(201);
    },
  );

  test("a refusal is readable under compression", async () => {
    const shop = await openShop({ framework, handler, outside: [compressionLayer()] });
    const reply = await submit(shop, undefined, "post");
    expect([reply.status, reply.body.code]).toEqual([401, "submit_anonymous"]);
  });

  test.each([
    ["a skip", () => true, 201],
    ["an async skip", async () => true, 201],
    ["a skip that says no", async () => false, 401],
  ])("with %s the answer is as it says", async (_how, skip, status) => {
    const shop = await openShop({ framework, handler, guard: { skip } });
    expect((await submit(shop, undefined, "post")).status).toBe(status);
  });

  test("a lock that was closed answers 503", async () => {
    const shop = await openShop({ framework, handler });
    await shop.lock.close();
    const reply = await submit(shop, shop.user, "post");
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

  test("may be async", async () => {
    const { seen, reply } = await submit(async (_req, res) => {
      await Promise.resolve();
      res.status(418).end();
    });
    expect([reply.status, seen]).toEqual([418, { ran: 0, errors: [] }]);
  });

  const error = new Error("theirs");
  test.each<[how: string, answer: SubmitGuardOptions["onAnonymous"]]>([
    ["passes an error to next", (_req, _res, next) => next(error)],
    [
      "throws",
      () => {
        throw error;
      },
    ],
    ["rejects", () => Promise.reject(error)],
  ])("that %s reaches the error handler", async (_how, answer) => {
    const { seen, reply } = await submit(answer);
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
