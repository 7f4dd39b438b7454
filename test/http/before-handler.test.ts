import { bodyParser } from "@koa/bodyparser";
import express, { type Request } from "express";
import fastify from "fastify";
import Koa3 from "koa";
import Koa2 from "koa2";
import supertest from "supertest";
import { afterEach, describe, expect, test, vi } from "vitest";
import { submitGuard as expressGuard } from "../../src/express/index.ts";
import { submitGuard as fastifyGuard } from "../../src/fastify/index.ts";
import { MemoryStore, SubmitLock } from "../../src/index.ts";
import { submitGuard as koaGuard } from "../../src/koa/index.ts";
import { until } from "../support/until.ts";
import { orderKey } from "./once-shop.ts";

afterEach(() => vi.unstubAllGlobals());

interface Shop {
  readonly lock: SubmitLock;
  readonly order: () => PromiseLike<{ readonly body: unknown; readonly status: number }>;
  readonly runs: () => number;
}

/** What goes wrong in front of the handler, on the request or on Koa's context. */
type Break = (of: object) => void;

const guardOptions = (lock: SubmitLock) => ({ lock, userId: () => "42", idempotency: {} });

function shopOf(
  open: (lock: SubmitLock, place: () => object) => Parameters<typeof supertest>[0],
  more: object = {},
) {
  const lock = new SubmitLock({ store: new MemoryStore() });
  let runs = 0;
  const app = open(lock, () => ({ run: ++runs, ...more }));
  const order = () => supertest(app).post("/orders").set("Idempotency-Key", orderKey).send({});
  return { lock, order, runs: () => runs };
}

const koa = (Koa: typeof Koa3) => (broken: Break, more?: object) =>
  shopOf((lock, place) => {
    const app = new Koa();
    app.silent = true;
    app.use((ctx, next) => {
      broken(ctx);
      return next();
    });
    app.use(bodyParser());
    app.use(koaGuard(guardOptions(lock)));
    app.use((ctx) => {
      ctx.status = 201;
      ctx.body = place();
    });
    return app.callback();
  }, more);

const frameworks: [name: string, open: (broken: Break, more?: object) => Promise<Shop> | Shop][] = [
  [
    "Express",
    (broken) =>
      shopOf((lock, place) => {
        const guard = expressGuard(guardOptions(lock));
        const app = express().use(express.json());
        app.use((req, _res, next) => {
          broken(req);
          next();
        });
        app.post(
          "/orders",
          guard.protect(async (_req: Request, res) => void res.status(201).json(place())),
        );
        app.use(((_error, _req, res, _next) => res.sendStatus(500)) as express.ErrorRequestHandler);
        return app;
      }),
  ],
  ["Koa 2", koa(Koa2 as unknown as typeof Koa3)],
  ["Koa 3", koa(Koa3)],
  [
    "Fastify",
    async (broken) => {
      const app = fastify();
      const shop = shopOf((lock, place) => {
        const guard = fastifyGuard(guardOptions(lock));
        app.addHook("preHandler", async (request) => broken(request));
        app.post(
          "/orders",
          guard.protect(async (_request, reply) => reply.code(201).send(place())),
        );
        return app.server;
      });
      await app.ready();
      return shop;
    },
  ],
];

describe("P5: what throws between the lock and the handler does not lock the user out", () => {
  const failing = {
    get: () => undefined,
    set: () => {
      throw new Error("theirs");
    },
  };
  const onLease: Break = (of) => Object.defineProperty(of, "submitLease", failing);
  const onState: Break = (of) =>
    Object.defineProperty((of as Koa3.Context).state, "submitLease", failing);
  const onBody: Break = (of) => {
    let reads = 0;
    const get = () => {
      // Once, because Koa's own error handler reads it, too.
      if (reads++ === 0) throw new Error("theirs");
    };
    Object.defineProperty((of as Koa3.Context).response, "body", { get, set: () => {} });
  };

  test.each(
    frameworks.flatMap(([name, open]) =>
      Object.entries(name.startsWith("Koa") ? { onState, onBody } : { onLease }).map(
        ([what, broken]) => [name, what, open, broken] as const,
      ),
    ),
  )("on %s, %s", async (_name, _what, open, broken) => {
    let isBroken = true;
    const { lock, order } = await open((of) => isBroken && broken(of));
    expect((await order()).status).toBe(500);
    await until(() => lock.stats().held === 0, { what: "the lease to end", boundMs: 10_000 });
    isBroken = false;
    expect((await order()).status).toBe(201);
    await lock.close();
  });
});

test.each(frameworks.filter(([name]) => name.startsWith("Koa")))(
  "P5: on %s, a body with a pipe that is no stream's is JSON, and its repeat gets it",
  async (_name, open) => {
    const { lock, order, runs } = await open(() => {}, { pipe: () => {} });
    const answers = [await order(), await order()];
    expect(answers.map(({ body, status }) => [status, body])).toEqual([
      [201, { run: 1 }],
      [201, { run: 1 }],
    ]);
    expect([runs(), lock.stats().held]).toEqual([1, 0]);
    await lock.close();
  },
);

test("P9: the repeat of an order whose status is a text of Node's response does not run", async () => {
  const lock = new SubmitLock({ store: new MemoryStore() });
  let runs = 0;
  const app = new Koa3().use(bodyParser()).use(koaGuard(guardOptions(lock)));
  app.use((ctx) => {
    ctx.body = { run: ++runs };
    Object.assign(ctx.res, { statusCode: "201" });
  });
  const order = () =>
    supertest(app.callback()).post("/orders").set("Idempotency-Key", orderKey).send({});
  expect((await order()).status).toBe(201);
  expect((await order()).body).toMatchObject({ code: "idempotency_answer_unavailable" });
  expect(runs).toBe(1);
  await lock.close();
});

describe("P9: without the classes of fetch, as with jsdom or --no-experimental-fetch", () => {
  // Koa 3 itself needs them.
  test.each(frameworks.filter(([name]) => name !== "Koa 3"))(
    "an order on %s is placed once, and its answer repeated",
    async (_name, open) => {
      const { lock, order, runs } = await open(() => {});
      for (const name of ["Response", "ReadableStream"]) vi.stubGlobal(name, undefined);
      const clicks = await Promise.all([order(), order()]);
      const late = await order();
      expect([...clicks, late].map(({ body, status }) => [status, body])).toEqual(
        Array.from({ length: 3 }, () => [201, { run: 1 }]),
      );
      expect(runs()).toBe(1);
      await lock.close();
    },
  );
});
