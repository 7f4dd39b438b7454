import type { RequestListener } from "node:http";
import { createServer } from "node:http";
import cookie from "@fastify/cookie";
import fastifySession from "@fastify/session";
import express5, { type RequestHandler } from "express";
import session from "express-session";
import express4 from "express4";
import Fastify, { type FastifyRequest } from "fastify";
import { afterEach, expect, onTestFinished, test } from "vitest";
import * as onExpress from "../../src/express/index.ts";
import * as onFastify from "../../src/fastify/index.ts";
import { RedisStore, type SubmitLock } from "../../src/index.ts";
import { freshUser } from "../support/ids.ts";
import { closeLocks, openLock } from "../support/locks.ts";
import { until } from "../support/until.ts";
import { gate } from "./gate.ts";
import { listen } from "./http-client.ts";
import { patientTimes, sharedRedis } from "./shop.ts";

afterEach(closeLocks);

/** A session with the cart, as each of the libraries has it. */
interface CartSession {
  cart?: string[];
  seen?: number;
  reload(done: (error?: unknown) => void): unknown;
}

interface Parts {
  readonly lock: SubmitLock;
  readonly user: string;
  /** Resolves when the first order may be placed. */
  readonly goOn: Promise<void>;
}

type Shop = (parts: Parts) => Promise<string>;

/** Makes an order, which empties the cart of the session. It reads that again under the lock. */
function ordering(goOn: Promise<void>) {
  let orders = 0;
  return async (current: () => CartSession) => {
    await new Promise<void>((done) => current().reload(() => done()));
    await goOn;
    if (!current().cart?.length) return { status: 402, body: { orders } };
    current().cart = [];
    return { status: 201, body: { orders: ++orders } };
  };
}

function onExpressWith(lib: typeof express5, middleware: readonly RequestHandler[]): Shop {
  return async ({ goOn, lock, user }) => {
    const app = lib();
    const of = (req: object) => (req as { session: CartSession }).session;
    app.use(lib.json(), ...middleware);
    app.post("/fill", (req, res) => {
      of(req).cart = ["apples"];
      res.json({});
    });
    app.post("/cart", (req, res) => void res.json(of(req).cart));
    const guard = onExpress.submitGuard({ lock, userId: () => user, idempotency: {} });
    const place = ordering(goOn);
    app.post(
      "/orders",
      guard.protect(async (req, res) => {
        const { status, body } = await place(() => of(req));
        res.status(status).json(body);
      }),
    );
    return await serve(app);
  };
}

async function serve(app: RequestListener): Promise<string> {
  const server = createServer(app);
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${await listen(server)}`;
}

function onFastifyWith(options: { rolling?: boolean }): Shop {
  return async ({ goOn, lock, user }) => {
    const app = Fastify();
    onTestFinished(() => app.close());
    const of = (request: FastifyRequest) => request.session as unknown as CartSession;
    app.register(cookie);
    const secret = "a secret of at least 32 characters";
    app.register(fastifySession, { secret, cookie: { secure: false }, ...options });
    app.post("/fill", async (request) => {
      of(request).cart = ["apples"];
      return {};
    });
    app.post("/cart", async (request) => of(request).cart);
    const guard = onFastify.submitGuard({ lock, userId: () => user, idempotency: {} });
    const place = ordering(goOn);
    app.post(
      "/orders",
      guard.protect(async (request, reply) => {
        const { status, body } = await place(() => of(request));
        return reply.code(status).send(body);
      }),
    );
    return await app.listen({ port: 0, host: "127.0.0.1" });
  };
}

const secret = "a secret for tests";
const resaved = () => session({ secret, resave: true, saveUninitialized: true });
const rewritten = () => session({ secret, resave: false, saveUninitialized: true });
const writes: RequestHandler = (req, _res, next) => {
  (req as unknown as { session: CartSession }).session.seen = performance.now();
  next();
};

const shops: [what: string, shop: () => Shop][] = [
  ["express-session that saves each, Express 5", () => onExpressWith(express5, [resaved()])],
  ["express-session that saves each, Express 4", () => onExpressWith(express4, [resaved()])],
  ["a session that is written, Express 5", () => onExpressWith(express5, [rewritten(), writes])],
  ["@fastify/session as it is", () => onFastifyWith({})],
  ["@fastify/session without rolling", () => onFastifyWith({ rolling: false })],
];

/** Two clicks, of which the second waits for the first. */
async function clickTwice(shop: Shop) {
  const [lock, user, goOn] = [
    openLock({ store: new RedisStore(sharedRedis()), ...patientTimes }),
    freshUser(),
    gate(),
  ];
  const url = await shop({ lock, user, goOn: goOn.opened });
  const post = (path: string, cookie = "", key = "a-key") =>
    fetch(url + path, { method: "POST", headers: { cookie, "idempotency-key": key } });
  const filled = await post("/fill");
  const cookie = filled.headers.get("set-cookie")?.split(";")[0];
  const clicks = [post("/orders", cookie), post("/orders", cookie)];
  await until(() => lock.stats().waiting === 1, { what: "the second click to wait" });
  goOn.open();
  const replies = await Promise.all(clicks);
  return { post, cookie, statuses: replies.map(({ status }) => status), replies };
}

test.each(shops)("a repeat that waited does not fill the cart again: %s", async (_what, shop) => {
  const { cookie, post, replies, statuses } = await clickTwice(shop());
  expect(statuses).toEqual([201, 201]);
  expect(await Promise.all(replies.map((reply) => reply.json()))).toEqual([
    { orders: 1 },
    { orders: 1 },
  ]);
  expect(await (await post("/cart", cookie)).json()).toEqual([]);
  expect((await post("/orders", cookie, "another-key")).status).toBe(402);
});

test.each<[string, () => unknown]>([
  ["never answers", () => {}],
  [
    "throws",
    () => {
      throw new Error("of the session");
    },
  ],
  ["rejects", () => Promise.reject(new Error("of the session"))],
])("a session whose reload %s costs the repeat a second at most", async (_what, failing) => {
  let reloads = 0;
  const middleware: RequestHandler = (req, _res, next) => {
    // The first is the order's own.
    const reload = (done: () => void) => (reloads++ === 0 ? done() : failing());
    Object.assign(req, { session: { cart: ["apples"], reload } });
    next();
  };
  const { statuses } = await clickTwice(onExpressWith(express5, [middleware]));
  expect([statuses, reloads]).toEqual([[201, 201], 2]);
});
