import { once } from "node:events";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import express5, { type ErrorRequestHandler, type RequestHandler } from "express";
import express4 from "express4";
import supertest from "supertest";
import { afterEach, describe, expect, test } from "vitest";
import { type SubmitGuard, submitGuard } from "../../src/express/index.ts";
import { RedisStore, type SubmitLock } from "../../src/index.ts";
import { closeClients, ioredis6 } from "../support/clients.ts";
import { freshUser } from "../support/ids.ts";
import { closeLocks, openLock } from "../support/locks.ts";
import { sharedRedisPort } from "../support/redis-server.ts";
import { until } from "../support/until.ts";
import { gate } from "./gate.ts";
import { type HttpClient, openClient } from "./http-client.ts";
import { patientTimes } from "./shop.ts";

let server: Server | undefined;
let client: HttpClient | undefined;
afterEach(async () => {
  client?.close();
  server?.closeAllConnections();
  server?.close();
  await closeLocks();
  closeClients();
});

function patientLock(): SubmitLock {
  const store = new RedisStore(ioredis6.connect(sharedRedisPort()));
  return openLock({ store, ...patientTimes });
}

/** An application with these handlers at /orders, and an error handler that notes what it gets. */
async function shopWith(
  lib: typeof express5,
  handlers: (guard: SubmitGuard) => RequestHandler[],
  onError: ErrorRequestHandler = (_error, _req, res, _next) => void res.status(500).end(),
) {
  const lock = patientLock();
  const user = freshUser();
  const errors: unknown[] = [];
  const app = lib();
  app.post("/orders", ...handlers(submitGuard({ lock, userId: () => user })));
  const note: ErrorRequestHandler = (error, req, res, next) => {
    errors.push(error);
    onError(error, req, res, next);
  };
  app.use(note);
  server = createServer(app).listen(0, "127.0.0.1");
  await once(server, "listening");
  const isFree = async () => {
    const attempt = await lock.acquire(user);
    if (attempt.outcome === "acquired") await attempt.lease.release();
    return attempt.outcome === "acquired";
  };
  client = openClient(1, (server.address() as AddressInfo).port);
  const submit = client.call({});
  const isFreeSoon = () => until(isFree, { what: "the lock to be free" });
  return { errors, submit, isFree, isFreeSoon };
}

describe.each([
  { name: "Express 4", lib: express4 },
  { name: "Express 5", lib: express5 },
])("guard.protect on $name", ({ lib }) => {
  test("calls the handler as Express would", async () => {
    const router = lib.Router();
    const seen: unknown[] = [];
    const lock = patientLock();
    const guard = submitGuard({ lock, userId: () => "42" });
    function handler(this: unknown, ...[req, res, next]: Parameters<RequestHandler>) {
      seen.push(req.params, typeof next);
      res.json({ ok: true });
    }
    router.post("/orders/:order", guard.protect(handler));
    const reply = await supertest(lib().use("/shop", router)).post("/shop/orders/7");
    expect(reply.body).toEqual({ ok: true });
    expect(seen).toEqual([{ order: "7" }, "function"]);
  });

  test("keeps the lock for the work of later handlers, also when the client has left", async () => {
    const [started, left, goOn] = [gate(), gate(), gate()];
    const { submit, isFree, isFreeSoon } = await shopWith(lib, (guard) => [
      guard.protect(async (_req, res, next) => {
        res.once("close", left.open);
        await Promise.resolve();
        next();
      }),
      (_req, res) => {
        started.open();
        void goOn.opened.then(() => res.json({}));
      },
    ]);
    await started.opened;
    submit.abort();
    await left.opened;
    expect(await isFree()).toBe(false);
    goOn.open();
    await isFreeSoon();
  });

  test("of a handler in callback style keeps the lock when the client has left", async () => {
    const [started, left, goOn] = [gate(), gate(), gate()];
    const { submit, isFree, isFreeSoon } = await shopWith(lib, (guard) => [
      guard.protect((_req, res) => {
        res.once("close", left.open);
        started.open();
        void goOn.opened.then(() => res.json({}));
      }),
    ]);
    await started.opened;
    submit.abort();
    await left.opened;
    expect(await isFree()).toBe(false);
    goOn.open();
    await isFreeSoon();
  });

  test("of a handler that throws at once keeps the lock until the error is answered: it may have started something", async () => {
    const [started, left, goOn] = [gate(), gate(), gate()];
    const { submit, isFree, isFreeSoon } = await shopWith(
      lib,
      (guard) => [
        guard.protect((_req, res) => {
          res.once("close", left.open);
          throw new Error("thrown");
        }),
      ],
      (_error, _req, res) => {
        started.open();
        void goOn.opened.then(() => res.status(500).end());
      },
    );
    await started.opened;
    submit.abort();
    await left.opened;
    expect(await isFree()).toBe(false);
    goOn.open();
    await isFreeSoon();
  });

  test.each([undefined, null])(
    "makes a rejection with %s an error, and starts no later handler",
    async (reason) => {
      let later = 0;
      const { submit, errors, isFreeSoon } = await shopWith(lib, (guard) => [
        guard.protect(() => Promise.reject(reason)),
        (_req, res) => {
          later++;
          res.end();
        },
      ]);
      expect((await submit.reply).status).toBe(500);
      expect(errors).toEqual([expect.any(Error)]);
      expect(later).toBe(0);
      await isFreeSoon();
    },
  );

  test("goes on to the next handler under the lock", async () => {
    let free: boolean | undefined;
    const shop: { isFree?: () => Promise<boolean> } = {};
    const began = gate();
    const made = await shopWith(lib, (guard) => [
      guard.protect((_req, _res, next) => next()),
      async (_req, res) => {
        await began.opened;
        free = await shop.isFree?.();
        res.status(201).end();
      },
    ]);
    shop.isFree = made.isFree;
    began.open();
    expect((await made.submit.reply).status).toBe(201);
    expect(free).toBe(false);
    await made.isFreeSoon();
  });

  test("a refusal of a request that somebody has half answered breaks the connection off", async () => {
    const lock = patientLock();
    const user = freshUser();
    await lock.acquire(user);
    const app = lib();
    app.use((_req, res, next) => {
      res.write("half an answer");
      next();
    });
    app.post("/orders", submitGuard({ lock, userId: () => user }));
    const errors: unknown[] = [];
    const note: ErrorRequestHandler = (error, _req, _res, next) => {
      errors.push(error);
      next(error);
    };
    app.use(note);
    // No half answer may be taken for a whole one.
    await expect(supertest(app).post("/orders")).rejects.toThrow();
    expect(errors).toEqual([]);
  });
});
