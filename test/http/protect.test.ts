import { createServer, type Server } from "node:http";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { setTimeout as sleep } from "node:timers/promises";
import express5, { type ErrorRequestHandler, type RequestHandler, type Response } from "express";
import express4 from "express4";
import supertest from "supertest";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import type * as expressEntry from "../../src/express/index.ts";
import { type SubmitGuard, submitGuard } from "../../src/express/index.ts";
import type * as coreEntry from "../../src/index.ts";
import { MemoryStore, RedisStore, SubmitLock } from "../../src/index.ts";
import { recordWarnings } from "../support/channels.ts";
import { freshUser } from "../support/ids.ts";
import { closeLocks, openLock } from "../support/locks.ts";
import { until } from "../support/until.ts";
import { gate } from "./gate.ts";
import { type HttpClient, listen, openClient } from "./http-client.ts";
import { canAcquire, endless, type Moments, patientTimes, sharedRedis } from "./shop.ts";

describe("protect", () => {
  let server: Server | undefined;
  let client: HttpClient | undefined;
  afterEach(async () => {
    client?.close();
    server?.closeAllConnections();
    server?.close();
    await closeLocks();
  });

  function patientLock(): SubmitLock {
    const store = new RedisStore(sharedRedis());
    return openLock({ store, ...patientTimes });
  }

  /** An application with these handlers at /orders, and an error handler that notes what it gets. */
  async function shopWith(
    lib: typeof express5,
    handlers: (guard: SubmitGuard) => RequestHandler[],
  ) {
    const lock = patientLock();
    const user = freshUser();
    const errors: unknown[] = [];
    const app = lib();
    app.post("/orders", ...handlers(submitGuard({ lock, userId: () => user })));
    const note: ErrorRequestHandler = (error, _req, res, _next) => {
      errors.push(error);
      res.status(500).end();
    };
    app.use(note);
    const closed = gate();
    server = createServer(app);
    server.on("request", (_req, res) => res.once("close", closed.open));
    const isFree = () => canAcquire(lock, user);
    client = openClient(1, await listen(server));
    const submit = client.call({});
    const isFreeSoon = () => until(isFree, { what: "the lock to be free" });
    return { errors, submit, left: closed.opened, isFree, isFreeSoon };
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

    test.each<[what: string, made: (guard: SubmitGuard, moments: Moments) => RequestHandler[]]>([
      [
        "for the work of later handlers",
        (guard, { started, goOn }) => [
          guard.protect(async (_req, _res, next) => {
            await Promise.resolve();
            next();
          }),
          (_req, res) => {
            started();
            void goOn.then(() => res.json({}));
          },
        ],
      ],
      [
        "of a handler in callback style",
        (guard, { started, goOn }) => [
          guard.protect((_req, res) => {
            started();
            void goOn.then(() => res.json({}));
          }),
        ],
      ],
      [
        "of a handler that throws at once, until the error is answered: it may have started something",
        (guard, { started, goOn }) => [
          guard.protect(() => {
            throw new Error("thrown");
          }),
          ((_error: unknown, _req: unknown, res: Response, _next: unknown) => {
            started();
            void goOn.then(() => res.status(500).end());
          }) as never,
        ],
      ],
    ])("keeps the lock %s, also when the client has left", async (_what, made) => {
      const [started, goOn] = [gate(), gate()];
      const moments = { started: started.open, goOn: goOn.opened };
      const { submit, left, isFree, isFreeSoon } = await shopWith(lib, (guard) =>
        made(guard, moments),
      );
      await started.opened;
      submit.abort();
      await left;
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
});

describe.each([
  { name: "Express 4", lib: express4 },
  { name: "Express 5", lib: express5 },
])("protect on $name, where the handler breaks its response off", ({ lib }) => {
  const breaking: [string, (req: express5.Request, res: express5.Response) => Promise<void>][] = [
    [
      "a pipeline that has failed",
      async (_req, res) => {
        const source = new Readable({ read: () => source.destroy(new Error("no more")) });
        await pipeline(source, res).catch(() => {});
      },
    ],
    ["a response that is destroyed", async (_req, res) => void res.destroy()],
    ["a request that is destroyed", async (req) => void req.destroy()],
    ["a socket that is destroyed", async (req) => void req.socket.destroy()],
    [
      "a response that is destroyed behind its head",
      async (_req, res) => {
        res.flushHeaders();
        res.destroy();
      },
    ],
  ];
  test.each(breaking)("the user is free at once behind %s", async (_what, handler) => {
    const lock = new SubmitLock({ store: new MemoryStore() });
    const guard = submitGuard({ lock, userId: () => "42" });
    const server = createServer(lib().post("/orders", guard.protect(handler)));
    const url = `http://127.0.0.1:${await listen(server)}/orders`;
    const answer = fetch(url, { method: "POST" }).then((answer) => answer.text());
    await expect(answer).rejects.toThrow();
    await until(() => canAcquire(lock, "42"), { what: "the lock to be free", boundMs: 10_000 });
    server.close();
  });
});

describe("protect unseen", () => {
  /** Short enough to wait for, long enough for a busy machine. */
  const times = { ttlMs: 3_000, maxHoldMs: 3_000 };

  let given: ReturnType<typeof recordWarnings>;
  let lock: coreEntry.SubmitLock | undefined;
  let server: Server | undefined;
  let client: HttpClient | undefined;
  /** Without the lock's own, of any order that has not ended at maxHoldMs. */
  const ofGuard = () =>
    given.calls.filter(([, options]) => Object(options).code !== "SUBMIT_LOCK_OUTLIVED");
  beforeEach(() => {
    given = recordWarnings();
  });
  afterEach(async () => {
    client?.close();
    server?.closeAllConnections();
    server?.close();
    // An order that is still at work would warn in the next test.
    await lock?.close({ timeoutMs: 0 });
    given.restore();
  });

  /** A shop on a copy of the package that has not warned yet. */
  async function freshShop(
    lib: typeof express5,
    handlersOf: (guard: expressEntry.SubmitGuard) => RequestHandler[],
  ) {
    vi.resetModules();
    const { submitGuard }: typeof expressEntry = await import("../../src/express/index.ts");
    const { MemoryStore, SubmitLock }: typeof coreEntry = await import("../../src/index.ts");
    const fresh = new SubmitLock({ store: new MemoryStore(), ...times });
    lock = fresh;
    const app = lib();
    app.post("/orders", ...handlersOf(submitGuard({ lock: fresh, userId: () => "42" })));
    server = createServer(app);
    client = openClient(1, await listen(server));
    const submit = client.call;
    const isFree = () => canAcquire(fresh, "42");
    const isFreeAgain = () => until(isFree, { what: "the lock to be free" });
    return { lock: fresh, submit, isFree, isFreeAgain };
  }

  const streaming = (guard: expressEntry.SubmitGuard): RequestHandler[] => [
    guard.protect((_req, res) => void endless().pipe(res)),
  ];

  describe.each([
    { name: "Express 4", lib: express4 },
    { name: "Express 5", lib: express5 },
  ])("$name", ({ lib }) => {
    test("a handler without a promise that streams to a client who leaves is warned of once", async () => {
      const { submit, isFree, isFreeAgain } = await freshShop(lib, streaming);
      for (let i = 0; i < 2; i++) {
        const call = submit({});
        await call.begun;
        call.abort();
        expect(await isFree()).toBe(false);
        await isFreeAgain();
      }
      expect(ofGuard()).toEqual([
        [
          expect.stringMatching(/guard\.protect\(\).*async.*await pipeline\(source, res\)/),
          { type: "SubmitLockWarning", code: "SUBMIT_LOCK_UNSEEN_HANDLER" },
        ],
      ]);
    });
  });

  describe("on Express 5", () => {
    test.each<[string, (guard: expressEntry.SubmitGuard) => RequestHandler[]]>([
      [
        "an async handler that has begun to answer",
        (guard) => [
          guard.protect(async (_req, res) => {
            res.flushHeaders();
            endless().pipe(res);
          }),
        ],
      ],
      [
        "a handler that ends its response later",
        (guard) => [
          guard.protect((_req, res) => {
            res.write("the first part");
            res.once("close", () => setTimeout(() => res.end(), 20));
          }),
        ],
      ],
      [
        "a handler that passes on to one that streams",
        (guard) => [
          guard.protect((_req, _res, next) => next()),
          (_req, res) => void endless().pipe(res),
        ],
      ],
      ["a plain guard", (guard) => [guard, (_req, res) => void endless().pipe(res)]],
    ])("%s whose client leaves is not warned of", async (_what, handlersOf) => {
      const { submit, isFreeAgain } = await freshShop(express5, handlersOf);
      const call = submit({});
      await call.begun;
      call.abort();
      await isFreeAgain();
      expect(ofGuard()).toEqual([]);
    });

    test("a value that is returned and not sent is warned of, and so is the order at maxHoldMs", async () => {
      const returning = (guard: expressEntry.SubmitGuard): RequestHandler[] => [
        guard.protect((async () => ({ placed: true })) as never),
      ];
      const { submit, isFreeAgain } = await freshShop(express5, returning);
      const call = submit({});
      await isFreeAgain();
      const outlived = () => given.calls.length === 2;
      await until(outlived, { what: "the warnings" });
      expect(given.calls.map(([, options]) => Object(options).code)).toEqual([
        "SUBMIT_LOCK_RETURNED_VALUE",
        "SUBMIT_LOCK_OUTLIVED",
      ]);
      expect(given.calls[0]?.[0]).toContain("res.json(value)");
      call.abort();
    });

    test("a promise of nothing whose answer comes later is not warned of", async () => {
      const later = (guard: expressEntry.SubmitGuard): RequestHandler[] => [
        guard.protect(async (_req, res) => {
          setTimeout(() => res.json({}), 50);
        }),
        guard.protect(async (_req, res) => res),
      ];
      const { submit } = await freshShop(express5, later);
      expect((await submit({}).reply).status).toBe(200);
      expect(given.calls).toEqual([]);
    });

    test("a lease that is lost for another reason than maxHoldMs is not warned of", async () => {
      const { lock, submit } = await freshShop(express5, streaming);
      const call = submit({});
      await call.begun;
      call.abort();
      // Time for the server to see that the client has left.
      await sleep(30);
      await lock.close({ timeoutMs: 0 });
      await sleep(times.maxHoldMs);
      expect(ofGuard()).toEqual([]);
    });
  });
});
