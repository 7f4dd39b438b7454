import supertest from "supertest";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { ioredis6 } from "../support/clients.ts";
import { freePort } from "../support/free-port.ts";
import { acquired } from "../support/locks.ts";
import { all, type Framework } from "./frameworks.ts";
import { compressionLayer, layerThatWaits } from "./layers.ts";
import { closeShops, openShop, type Shop, type ShopOptions } from "./shop.ts";
import type { Turn } from "./turn.ts";

let logged: unknown[] = [];
beforeEach(() => {
  logged = [];
  vi.spyOn(console, "error").mockImplementation((...args) => void logged.push(args));
});
afterEach(async () => {
  vi.restoreAllMocks();
  await closeShops();
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
    title: "Unauthorized",
    retryAfter: undefined,
    open: async (options: ShopOptions) => ({ shop: await openShop(options), user: undefined }),
  },
  {
    status: 409,
    code: "submit_contended",
    title: "Conflict",
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
    title: "Service Unavailable",
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

describe.each(all.filter(({ http }) => http === 1))("$name", (framework: Framework) => {
  describe.each(refusals)("$status", ({ status, code, title, retryAfter, open }) => {
    test("is a problem that says what to do, and keeps the headers set before", async () => {
      const { shop, user } = await open({ framework, handler, outside: [cors] });
      const { headers, text, ...reply } = await submit(shop, user, "post");
      expect(reply.status).toBe(status);
      expect(headers["content-type"]).toMatch(/^application\/problem\+json/);
      expect(headers["retry-after"]).toBe(retryAfter);
      expect(headers["cache-control"]).toBe("no-store");
      expect(headers["access-control-allow-origin"]).toBe("https://shop.example");
      expect(headers["content-length"]).toBe(String(Buffer.byteLength(text)));
      expect(JSON.parse(text)).toEqual({
        type: "about:blank",
        title,
        status,
        detail: expect.stringMatching(/^[A-Z].*\.$/),
        code,
      });
      // Neither the key nor the user in any form, nor what Redis or the network said.
      const all = `${JSON.stringify(headers)}${text}`;
      expect(all).not.toMatch(/lock:|redis|ECONN|127\.0\.0\.1|[0-9a-f]{8}-[0-9a-f]{4}-/i);
    });

    test("to HEAD has the same headers and no body", async () => {
      const { shop, user } = await open({ framework, handler });
      const post = await submit(shop, user, "post");
      const head = await submit(shop, user, "head");
      expect(head.status).toBe(status);
      expect(head.text).toBeFalsy();
      const names = ["content-type", "content-length", "retry-after"];
      for (const name of names) expect(head.headers[name]).toBe(post.headers[name]);
    });

    test("reaches no error handler and no log, and starts no handler", async () => {
      const { shop, user } = await open({ framework, handler });
      await submit(shop, user, "post");
      expect(shop.errors).toEqual([]);
      expect(logged).toEqual([]);
      expect(shop.work.started).toBe(0);
    });

    test("is readable under compression", async () => {
      const { shop, user } = await open({ framework, handler, outside: [compressionLayer()] });
      const reply = await submit(shop, user, "post");
      expect([reply.status, reply.body.code]).toEqual([status, code]);
    });

    test("is never the answer to OPTIONS", async () => {
      const { shop, user } = await open({ framework, handler });
      expect((await submit(shop, user, "options")).status).toBe(201);
    });

    test.each([
      ["a skip", () => true],
      ["an async skip", async () => true],
    ])("is never the answer where %s says so", async (_how, skip) => {
      const { shop, user } = await open({ framework, handler, guard: { skip } });
      expect((await submit(shop, user, "post")).status).toBe(201);
    });

    test("is the answer where skip says no", async () => {
      const { shop, user } = await open({ framework, handler, guard: { skip: async () => false } });
      expect((await submit(shop, user, "post")).status).toBe(status);
    });
  });

  test('with onAnonymous "proceed" a guest goes on without a lease', async () => {
    const leases: unknown[] = [];
    const shop = await openShop({
      framework,
      guard: { onAnonymous: "proceed" },
      handler: (turn) => {
        leases.push(turn.lease);
        handler(turn);
      },
    });
    expect((await submit(shop, undefined, "post")).status).toBe(201);
    expect(leases).toEqual([undefined]);
  });

  test('with onUnavailable "proceed" an outage lets a submit go on without a lease', async () => {
    const leases: unknown[] = [];
    const shop = await openShop({
      framework,
      redis: ioredis6.connect(await freePort()),
      times: { acquireTimeoutMs: 60, commandTimeoutMs: 30 },
      guard: { onUnavailable: "proceed" },
      handler: (turn) => {
        leases.push(turn.lease);
        handler(turn);
      },
    });
    expect((await submit(shop, shop.user, "post")).status).toBe(201);
    expect(leases).toEqual([undefined]);
  });

  test("a lock that was closed answers 503", async () => {
    const shop = await openShop({ framework, handler });
    await shop.lock.close();
    const reply = await submit(shop, shop.user, "post");
    expect([reply.status, reply.body.code]).toEqual([503, "submit_unavailable"]);
  });
});
