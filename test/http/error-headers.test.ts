import { createServer, type RequestListener } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { getRequestListener } from "@hono/node-server";
import express5 from "express";
import express4 from "express4";
import Fastify from "fastify";
import { Hono } from "hono";
import Koa3 from "koa";
import Koa2 from "koa2";
import { afterEach, describe, expect, test, vi } from "vitest";
import { submitGuard as expressGuard } from "../../src/express/index.ts";
import { submitGuard as fastifyGuard } from "../../src/fastify/index.ts";
import { submitGuard as fetchGuard, leaseOf } from "../../src/fetch/index.ts";
import {
  LockContendedError,
  LockLostError,
  type LockStore,
  MemoryStore,
  problemOf,
  SubmitLock,
} from "../../src/index.ts";
import { submitGuard as koaGuard } from "../../src/koa/index.ts";
import type { Lease } from "../../src/lock/lease.ts";
import type { AcquireRequest } from "../../src/lock/store.ts";
import { record } from "../support/channels.ts";
import { listen } from "./http-client.ts";

afterEach(() => {
  vi.restoreAllMocks();
});

type Handler = (lease: Lease | undefined) => Promise<object>;

/** Applications without an error handler of their own, outside production. */
const apps: Record<string, (lock: SubmitLock, handler: Handler) => Promise<RequestListener>> = {};
for (const [name, lib] of [
  ["Express 4", express4],
  ["Express 5", express5],
] as const) {
  apps[name] = async (lock, handler) => {
    const app = lib().set("env", "development");
    const guard = expressGuard({ lock, userId: () => "42", idempotency: {} });
    const place = guard.protect(async (req, res) => {
      res.json(await handler(req.submitLease));
    });
    return app.post("/orders", place);
  };
}
for (const [name, lib] of [
  ["Koa 2", Koa2],
  ["Koa 3", Koa3],
] as const) {
  apps[name] = async (lock, handler) => {
    const app = new lib();
    app.silent = true;
    app.use(koaGuard({ lock, userId: () => "42", idempotency: {} }));
    app.use(async (ctx) => {
      ctx.body = await handler(ctx.state["submitLease"]);
    });
    return app.callback() as RequestListener;
  };
}
apps["Fastify 5"] = async (lock, handler) => {
  const app = Fastify();
  const guard = fastifyGuard({ lock, userId: () => "42", idempotency: {} });
  const place = guard.protect(async (request) => await handler(request.submitLease));
  app.post("/orders", place);
  await app.ready();
  return (req, res) => app.routing(req, res);
};

// Its own error handler reads no status, so the documents show this one.
apps["Hono with problemOf"] = async (lock, handler) => {
  const app = new Hono();
  const guard = fetchGuard({ lock, userId: () => "42", idempotency: {} });
  const place = guard.protect(async (request: Request) =>
    Response.json(await handler(leaseOf(request))),
  );
  app.post("/orders", (c) => place(c.req.raw));
  app.onError((error) => {
    const problem = problemOf(error) ?? { status: 500, body: "no order" };
    return new Response(problem.body, problem);
  });
  return getRequestListener(app.fetch);
};

/** What Redis says is nothing for a client. */
const secret = "NOPERM lock:submit:42 at 10.0.0.7";

class RefusingStore extends MemoryStore {
  readonly misconfigured: boolean;
  constructor(misconfigured: boolean) {
    super();
    this.misconfigured = misconfigured;
  }
  override acquire(request: AcquireRequest): void {
    const { misconfigured } = this;
    request.answer({ kind: "rejected", cause: new Error(secret), misconfigured });
  }
}

/** Its leases are soon lost, and its attempts last longer than a busy machine stops. */
const lockOver = (store: LockStore) =>
  new SubmitLock({ store, ttlMs: 800, maxHoldMs: 800, acquireTimeoutMs: 400 });
const order: Handler = async () => ({ order: 7 });

interface Row {
  readonly what: string;
  readonly status: number;
  readonly code: string;
  readonly lock?: () => SubmitLock;
  readonly handler?: Handler;
  readonly headers?: Record<string, string>;
  /** The guard has let it run: the handler's own lock refuses. */
  readonly isOwn?: true;
}

/** Work that ends with the signal, and says nothing of it. */
async function canceled(signal: AbortSignal | undefined): Promise<never> {
  while (signal?.aborted === false) await sleep(5);
  throw Object.assign(new Error("canceled"), { name: "CanceledError", code: "ERR_CANCELED" });
}

const rows: Row[] = [
  {
    what: "a permission that Redis refuses",
    status: 503,
    code: "submit_unavailable",
    lock: () => lockOver(new RefusingStore(true)),
  },
  {
    what: "a body that no parser has read",
    status: 500,
    code: "SUBMIT_LOCK_NO_FINGERPRINT",
    headers: { "content-type": "application/json", "idempotency-key": "k" },
  },
  {
    what: "a lease that was lost under the handler",
    status: 503,
    code: "submit_lock_lost",
    handler: async (lease) => {
      while (lease?.signal.aborted === false) await sleep(5);
      lease?.signal.throwIfAborted();
      return {};
    },
  },
  {
    what: "an abort that the lost lease has caused",
    status: 503,
    code: "submit_lock_lost",
    handler: async (lease) => await sleep(10_000, {}, { signal: lease?.signal }),
  },
  {
    what: "an error that wraps such an abort",
    status: 503,
    code: "submit_lock_lost",
    handler: async (lease) => {
      const why = await sleep(10_000, {}, { signal: lease?.signal }).catch((cause) => cause);
      throw new Error("the payment failed", { cause: why });
    },
  },
  {
    what: "an abort without a cause, as axios makes one",
    status: 503,
    code: "submit_lock_lost",
    handler: async (lease) => await canceled(lease?.signal),
  },
  {
    what: "a lock of its own that a handler did not get in time",
    isOwn: true,
    status: 409,
    code: "submit_contended",
    handler: async () => {
      const lock = new SubmitLock({ store: new MemoryStore() });
      const held = await lock.acquire("43");
      expect(held.outcome).toBe("acquired");
      return await lock.withLock("43", { waitMs: 20 }, order);
    },
  },
  {
    what: "a lock of its own whose store is away",
    isOwn: true,
    status: 503,
    code: "submit_unavailable",
    handler: () => lockOver(new RefusingStore(false)).withLock("43", order),
  },
];

describe.each(Object.keys(apps))("the default error handler of %s", (name) => {
  test.each(rows)(
    "answers $what with its code, without a key or a text of Redis",
    async ({ code, handler = order, headers = {}, isOwn, lock, status }) => {
      vi.spyOn(console, "error").mockImplementation(() => {});
      const app = await apps[name]?.(lock?.() ?? lockOver(new MemoryStore()), handler);
      // Not of Fastify, which parses a body that has the type of JSON, and not of Hono.
      if (/Fastify|Hono/.test(name) && status === 500) return;
      const server = createServer(app);
      const port = await listen(server);
      const refusals = record("submit-lock:refusal");
      const init = { method: "POST", headers, ...(status === 500 && { body: "{}" }) };
      const reply = await fetch(`http://127.0.0.1:${port}/orders`, init);
      expect([reply.status, reply.headers.get("submit-lock-code")]).toEqual([status, code]);
      expect(await reply.text()).not.toMatch(/NOPERM|lock:submit|10\.0\.0\.7/);
      const about = { key: "lock:submit:42", keyPrefix: "lock:submit:", submission: undefined };
      expect(refusals).toEqual(isOwn ? [] : [{ code, status, ...about }]);
      server.close();
    },
  );
});

test.each(Object.keys(apps))(
  "an abort of the handler's own is no lost lease on %s",
  async (name) => {
    vi.spyOn(console, "error").mockImplementation(() => {});
    const lock = new SubmitLock({ store: new MemoryStore() });
    const server = createServer(await apps[name]?.(lock, () => canceled(AbortSignal.abort())));
    const port = await listen(server);
    const reply = await fetch(`http://127.0.0.1:${port}/orders`, { method: "POST" });
    expect([reply.status, reply.headers.get("submit-lock-code")]).toEqual([500, null]);
    server.close();
  },
);

test("the key is a property of the errors that know one", async () => {
  const lock = lockOver(new MemoryStore());
  const held = await lock.acquire("42");
  if (held.outcome !== "acquired") throw new Error("nobody has this lock");
  const contended: LockContendedError = await lock
    .withLock("42", { waitMs: 0 }, order)
    .catch((error) => error);
  expect(contended).toBeInstanceOf(LockContendedError);
  while (!held.lease.signal.aborted) await sleep(5);
  const lost: LockLostError = held.lease.signal.reason;
  expect(lost).toBeInstanceOf(LockLostError);
  for (const error of [contended, lost]) {
    expect(error.key).toBe("lock:submit:42");
    expect(error.message).not.toContain("42");
  }
});

/** Guards whose own answer is an error, as `ctx.throw` makes one. */
const throwing: Record<string, (lock: SubmitLock) => RequestListener | Promise<RequestListener>> = {
  ...Object.fromEntries(
    Object.entries({ "Koa 2": Koa2, "Koa 3": Koa3 }).map(([name, lib]) => [
      name,
      (lock: SubmitLock) => {
        const app = new lib();
        app.silent = true;
        const userId = () => undefined;
        const onAnonymous = (ctx: Koa3.Context, { problem }: { problem: { status: number } }) =>
          ctx.throw(problem.status, "sign in", { headers: { "X-Shop": "ours" } });
        return app.use(koaGuard({ lock, userId, onAnonymous })).callback() as RequestListener;
      },
    ]),
  ),
  "Express 5": (lock) => {
    const userId = () => undefined;
    const guard = expressGuard({
      lock,
      userId,
      onAnonymous: (_req, _res, next, { problem: { status } }) =>
        next(Object.assign(new Error("sign in"), { status, headers: { "X-Shop": "ours" } })),
    });
    return express5().post(
      "/orders",
      guard.protect(async () => {}),
    );
  },
  "Fastify 5": async (lock) => {
    const app = Fastify();
    const userId = () => undefined;
    const guard = fastifyGuard({
      lock,
      userId,
      onAnonymous: (_request, reply, { problem: { status } }) => {
        reply.header("X-Shop", "ours");
        throw Object.assign(new Error("sign in"), { statusCode: status });
      },
    });
    app.post(
      "/orders",
      guard.protect(async () => ({})),
    );
    await app.ready();
    return (req, res) => app.routing(req, res);
  },
};
test.each(Object.keys(throwing))(
  "an answer of the application's own that is an error has the guard's code: %s",
  async (name) => {
    vi.spyOn(console, "error").mockImplementation(() => {});
    const server = createServer(await throwing[name]?.(lockOver(new MemoryStore())));
    const url = `http://127.0.0.1:${await listen(server)}/orders`;
    const { headers, status } = await fetch(url, { method: "POST" });
    const sent = ["submit-lock-code", "x-shop"].map((each) => headers.get(each));
    expect([status, ...sent]).toEqual([401, "submit_anonymous", "ours"]);
    server.close();
  },
);

describe("an error of a handler on fetch", () => {
  const failing = (work: (lease: Lease) => Promise<Response>) => {
    const guard = fetchGuard({ lock: lockOver(new MemoryStore()), userId: () => "42" });
    return guard.protect((request: Request) => work(leaseOf(request) as Lease));
  };

  test("is that of the lost lease where it is the cause", async () => {
    const handler = failing(({ signal }) => sleep(10_000, new Response(), { signal }));
    await expect(handler(new Request("http://shop.example"))).rejects.toBeInstanceOf(LockLostError);
  });

  test("stays what it is where the lease is lost, and is not the cause", async () => {
    const error = new Error("no goods");
    error.cause = error;
    const handler = failing(async ({ signal }) => {
      while (!signal.aborted) await sleep(5);
      throw error;
    });
    await expect(handler(new Request("http://shop.example"))).rejects.toBe(error);
  });
});
