import express, { type RequestHandler } from "express";
import Koa from "koa";
import supertest from "supertest";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import type * as expressEntry from "../../src/express/index.ts";
import type * as coreEntry from "../../src/index.ts";
import { MemoryStore, SubmitLock } from "../../src/index.ts";
import { submitGuard as koaGuard } from "../../src/koa/index.ts";
import { recordWarnings } from "../support/channels.ts";
import { until } from "../support/until.ts";
import { canAcquire } from "./shop.ts";

type Options = Omit<expressEntry.SubmitGuardOptions, "lock">;

let given: ReturnType<typeof recordWarnings>;
beforeEach(() => {
  given = recordWarnings();
});
afterEach(() => given.restore());

/** A shop on a copy of the package that has not warned yet. @param before runs before the guard. */
async function freshShop(options: Options, before: RequestHandler = (_req, _res, next) => next()) {
  vi.resetModules();
  const { submitGuard }: typeof expressEntry = await import("../../src/express/index.ts");
  const { MemoryStore, SubmitLock }: typeof coreEntry = await import("../../src/index.ts");
  const lock = new SubmitLock({ store: new MemoryStore() });
  const place: RequestHandler = (_req, res) => void res.sendStatus(201);
  const app = express();
  app.use(express.urlencoded({ extended: false }));
  app.post("/orders", before, submitGuard({ lock, ...options }), place);
  return async (form: object, [name, value] = ["Accept", "application/json"]) => {
    const answer = await supertest(app).post("/orders").set(name, value).type("form").send(form);
    await until(() => canAcquire(lock, "42"), { what: "the lock to be free" });
    return answer.status;
  };
}

const warningOf = (code: string, text: RegExp) => [
  [expect.stringMatching(text), { type: "SubmitLockWarning", code }],
];

describe("a submissionId that finds nothing", () => {
  const options: Options = {
    userId: () => "42",
    idempotency: { submissionId: (req) => req.body?.token },
  };

  test("in a body that was parsed is warned of once", async () => {
    const submit = await freshShop(options);
    expect(await submit({ tokn: "7" })).toBe(201);
    expect(await submit({ tokn: "7" })).toBe(201);
    expect(given.calls).toEqual(
      warningOf("SUBMIT_LOCK_NO_SUBMISSION_ID", /a later click is a second order.*"required"/),
    );
  });

  test("is not warned of where the header has the key, or the key is required", async () => {
    const submit = await freshShop(options);
    expect(await submit({ token: "7" })).toBe(201);
    expect(await submit({ tokn: "7" }, ["Idempotency-Key", "8e03978e"])).toBe(201);
    const idempotency = { ...options.idempotency, key: "required" } as const;
    const strict = await freshShop({ ...options, idempotency });
    expect(await strict({ tokn: "7" })).toBe(400);
    expect(given.calls).toEqual([]);
  });
});

test("a request that was answered before the guard is warned of once, and does not run", async () => {
  const submit = await freshShop({ userId: () => "42" }, (_req, res, next) => {
    res.sendStatus(202);
    next();
  });
  for (const _ of [1, 2]) expect(await submit({})).toBe(202);
  expect(given.calls).toEqual(
    warningOf("SUBMIT_LOCK_ANSWERED_BEFORE", /its handler did not run. Answer in the handler/),
  );
});

describe("a userId that finds no user", () => {
  const options: Options = { userId: (req) => req.get("x-user-id") };

  test.each([
    ["reject", 401],
    ["proceed", 201],
  ] as const)("in the first three requests is warned of once, with %j", async (answer, status) => {
    const submit = await freshShop({ ...options, onAnonymous: answer });
    for (let i = 1; i <= 2; i++) expect(await submit({})).toBe(status);
    expect(given.calls).toEqual([]);
    const warned = /Mount the session or the authentication before the guard/;
    for (let i = 3; i <= 4; i++) {
      expect(await submit({})).toBe(status);
      expect(given.calls).toEqual(warningOf("SUBMIT_LOCK_NO_USER", warned));
    }
  });

  test("after one that found a user is not warned of", async () => {
    const submit = await freshShop(options);
    expect(await submit({})).toBe(401);
    expect(await submit({}, ["X-User-Id", "42"])).toBe(201);
    for (let i = 1; i <= 4; i++) expect(await submit({})).toBe(401);
    expect(given.calls).toEqual([]);
  });
});

test("a GET that a guard of the whole application refuses is warned of, an order is not", async () => {
  vi.resetModules();
  const { submitGuard }: typeof expressEntry = await import("../../src/express/index.ts");
  const { MemoryStore, SubmitLock }: typeof coreEntry = await import("../../src/index.ts");
  const lock = new SubmitLock({ store: new MemoryStore() });
  const app = express().use(submitGuard({ lock, userId: () => "42" }));
  const order = await lock.acquire("42");
  await supertest(app).post("/orders").expect(409);
  expect(given.calls).toEqual([]);
  await supertest(app).get("/logo.png").expect(409);
  await supertest(app).get("/logo.png").expect(409);
  const fix = /Mount the guard on the routes that place orders/;
  expect(given.calls).toEqual(warningOf("SUBMIT_LOCK_GUARDED_READ", fix));
  if (order.outcome === "acquired") await order.lease.release();
});

test("a value that a function returns in place of an answer is warned of once", async () => {
  const unanswered: express.Response[] = [];
  const onAnonymous = (_req: express.Request, res: express.Response) => {
    unanswered.push(res);
    return { error: "sign in" };
  };
  const submit = await freshShop({ userId: () => undefined, onAnonymous });
  for (const times of [1, 2]) {
    const answered = submit({});
    const isWarned = () => unanswered.length === times && given.calls.length === 1;
    await until(isWarned, { what: "the warning" });
    unanswered.at(-1)?.sendStatus(418);
    expect(await answered).toBe(418);
  }
  expect(given.calls).toEqual(
    warningOf("SUBMIT_LOCK_RETURNED_VALUE", /a function that answers for the guard.*res\.json/),
  );
});

test("a function that throws nothing is a 500 on Koa, and no request that hangs", async () => {
  const onAnonymous = () => Promise.reject();
  const lock = new SubmitLock({ store: new MemoryStore() });
  const app = new Koa();
  app.silent = true;
  app.use(koaGuard({ lock, userId: () => undefined, onAnonymous }));
  await supertest(app.callback()).post("/orders").expect(500);
});
