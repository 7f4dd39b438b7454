import type { Server } from "node:http";
import express5, { type ErrorRequestHandler } from "express";
import express4 from "express4";
import Koa3 from "koa";
import Koa2 from "koa2";
import supertest from "supertest";
import { afterEach, describe, expect, test } from "vitest";
import { submitGuard as expressGuard, type SubmitGuardOptions } from "../../src/express/index.ts";
import { RedisStore, type SubmitLock } from "../../src/index.ts";
import {
  type SubmitGuardOptions as KoaSubmitGuardOptions,
  submitGuard as koaGuard,
} from "../../src/koa/index.ts";
import { closeClients, ioredis6 } from "../support/clients.ts";
import { freePort } from "../support/free-port.ts";
import { freshUser } from "../support/ids.ts";
import { closeLocks, leaseOf, openLock } from "../support/locks.ts";
import { sharedRedisPort } from "../support/redis-server.ts";
import { patientTimes } from "./shop.ts";

afterEach(async () => {
  await closeLocks();
  closeClients();
});

/** Each reason to turn a submit away: the option that answers, and a lock and a user that cause it. */
const reasons = [
  {
    option: "onAnonymous",
    info: { reason: "anonymous" },
    arrange: async () => ({ lock: goodLock(), user: undefined }),
  },
  {
    option: "onContended",
    info: {
      reason: "contended",
      expiresInMs: expect.any(Number),
      sameSubmission: false,
      answerUnavailable: false,
      isCooldown: false,
    },
    arrange: async () => {
      const [lock, user] = [goodLock(), freshUser()];
      await leaseOf(lock, user);
      return { lock, user };
    },
  },
  {
    option: "onUnavailable",
    info: {
      reason: "unavailable",
      cause: expect.objectContaining({ code: "SUBMIT_LOCK_UNAVAILABLE" }),
    },
    arrange: async () => {
      const redis = ioredis6.connect(await freePort());
      const lock = openLock({
        store: new RedisStore(redis),
        acquireTimeoutMs: 50,
        commandTimeoutMs: 25,
      });
      return { lock, user: freshUser() };
    },
  },
] as const;

/** The default answer, which each function is given. */
function problemOf(reason: string): unknown {
  const headers = { "Content-Type": "application/problem+json", "Cache-Control": "no-store" };
  const all = reason === "anonymous" ? headers : { ...headers, "Retry-After": "1" };
  return {
    status: { anonymous: 401, contended: 409, unavailable: 503 }[reason],
    code: `submit_${reason}`,
    headers: all,
    body: expect.stringContaining(`"code":"submit_${reason}"`),
  };
}

function goodLock(): SubmitLock {
  const store = new RedisStore(ioredis6.connect(sharedRedisPort()));
  return openLock({ store, ...patientTimes });
}

type ExpressAnswer = NonNullable<SubmitGuardOptions["onContended"]>;
type KoaAnswer = NonNullable<KoaSubmitGuardOptions["onContended"]>;

const expressMounts = ([4, 5] as const).flatMap((major) =>
  (["guard", "protect"] as const).map((mount) => ({
    name: `Express ${major}, ${mount}`,
    major,
    mount,
  })),
);

describe.each(expressMounts)("$name", ({ major, mount }) => {
  describe.each(reasons)("$option", ({ option, info, arrange }) => {
    async function submit(answer: ExpressAnswer) {
      const { lock, user } = await arrange();
      const seen = { ran: 0, errors: [] as unknown[] };
      const guard = expressGuard({ lock, userId: () => user, [option]: answer });
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

    test("a function answers, and is told why", async () => {
      const infos: unknown[] = [];
      const { seen, reply } = await submit((_req, res, _next, given) => {
        infos.push(given);
        res.status(418).json({ brewing: true });
      });
      expect([reply.status, reply.body]).toEqual([418, { brewing: true }]);
      expect(infos).toEqual([{ ...info, problem: problemOf(info.reason) }]);
      expect(seen).toEqual({ ran: 0, errors: [] });
    });

    test("an async function answers", async () => {
      const { seen, reply } = await submit(async (_req, res) => {
        await Promise.resolve();
        res.status(418).end();
      });
      expect(reply.status).toBe(418);
      expect(seen).toEqual({ ran: 0, errors: [] });
    });

    test("an error that it passes to next reaches the error handler", async () => {
      const error = new Error("theirs");
      const { seen, reply } = await submit((_req, _res, next) => next(error));
      expect(reply.status).toBe(500);
      expect(seen).toEqual({ ran: 0, errors: [error] });
    });

    test.each([
      [
        "throws",
        () => {
          throw new Error("theirs");
        },
      ],
      ["rejects", () => Promise.reject(new Error("theirs"))],
    ])("a function that %s reaches the error handler", async (_how, answer) => {
      const { seen } = await submit(answer);
      expect(seen).toEqual({ ran: 0, errors: [new Error("theirs")] });
    });

    test.each([undefined, null, "route", "router"])("next(%j) starts no handler", async (value) => {
      const { seen, reply } = await submit((_req, _res, next) => next(value));
      expect(reply.status).toBe(500);
      expect(seen).toMatchObject({ ran: 0, errors: [{ code: "SUBMIT_LOCK_ANSWERED_TWICE" }] });
    });

    test.each([undefined, null, "", "route", "router"])(
      "a rejection with %j starts no handler",
      async (reason) => {
        const { seen, reply } = await submit(() => Promise.reject(reason));
        expect(reply.status).toBe(500);
        expect(seen).toEqual({ ran: 0, errors: [expect.any(Error)] });
      },
    );

    test("next() after an answer starts no handler", async () => {
      const { seen, reply } = await submit((_req, res, next) => {
        res.status(418).end();
        (next as () => void)();
      });
      expect(reply.status).toBe(418);
      expect(seen).toMatchObject({ ran: 0, errors: [{ code: "SUBMIT_LOCK_ANSWERED_TWICE" }] });
    });
  });
});

describe.each([
  { name: "Koa 2", lib: Koa2 },
  { name: "Koa 3", lib: Koa3 },
])("$name", ({ lib }) => {
  describe.each(reasons)("$option", ({ option, info, arrange }) => {
    async function submit(answer: KoaAnswer) {
      const { lock, user } = await arrange();
      const seen = { ran: 0, errors: [] as unknown[] };
      const app = new lib();
      app.on("error", (error) => seen.errors.push(error));
      app.use(koaGuard({ lock, userId: () => user, [option]: answer }));
      app.use((ctx) => {
        seen.ran++;
        ctx.status = 201;
      });
      const reply = await supertest(app.callback() as unknown as Server).post("/orders");
      return { seen, reply };
    }

    test("a function answers, and is told why", async () => {
      const infos: unknown[] = [];
      const { seen, reply } = await submit((ctx, given) => {
        infos.push(given);
        ctx.status = 418;
        ctx.body = { brewing: true };
      });
      expect([reply.status, reply.body]).toEqual([418, { brewing: true }]);
      expect(infos).toEqual([{ ...info, problem: problemOf(info.reason) }]);
      expect(seen).toEqual({ ran: 0, errors: [] });
    });

    test("an async function may throw with a status", async () => {
      const { seen, reply } = await submit(async (ctx) => {
        await Promise.resolve();
        ctx.throw(429, "slowly");
      });
      expect([reply.status, reply.text]).toEqual([429, "slowly"]);
      expect(seen).toMatchObject({ ran: 0, errors: [{ status: 429 }] });
    });

    test("a function that rejects reaches the error handler", async () => {
      const { seen, reply } = await submit(() => Promise.reject(new Error("theirs")));
      expect(reply.status).toBe(500);
      expect(seen).toMatchObject({ ran: 0, errors: [{ message: "theirs" }] });
    });
  });
});
