import { setTimeout as sleep } from "node:timers/promises";
import express, { type RequestHandler } from "express";
import supertest from "supertest";
import { afterEach, describe, expect, test } from "vitest";
import { submitGuard } from "../../src/express/index.ts";
import {
  InvalidOptionError,
  InvalidValueError,
  isSubmitLockError,
  LockClosedError,
  LockContendedError,
  LockLostError,
  LockMisconfiguredError,
  MemoryStore,
  NoFingerprintError,
  problemOf,
} from "../../src/index.ts";
import { freshUser } from "../support/ids.ts";
import { closeLocks, leaseOf, openLock } from "../support/locks.ts";
import { until } from "../support/until.ts";

afterEach(closeLocks);

interface Door {
  /** Sends a submission with this content, whose work is `work`; resolves with its refusal. */
  send(content: string, work: () => Promise<unknown> | unknown): Promise<unknown>;
}

function openDoors() {
  const store = new MemoryStore();
  const times = { ttlMs: 2_000, acquireTimeoutMs: 400, commandTimeoutMs: 100 };
  const [lock, user] = [openLock({ store, ...times }), freshUser()];
  let place: () => unknown;
  const handler: RequestHandler = async (req, res) => {
    const done = await place();
    // No answer of it is kept: the record says that the work is done.
    if (done === "unkept") req.submission?.placed();
    res.status(done === "unkept" ? 500 : 201).json({});
  };
  const submissionId = () => "cart 7";
  const fingerprint = (req: { url?: string | undefined }) => req.url;
  const idempotency = { submissionId, fingerprint, waitMs: 0 };
  const guard = submitGuard({ lock, userId: () => user, idempotency });
  const app = express().post("/orders", guard.protect(handler));
  const guarded: Door = {
    send: async (content, work) => {
      place = work;
      const { headers, status, text } = await supertest(app)
        .post(`/orders?content=${content}`)
        .set("Accept", "text/html");
      const names = ["submit-lock-code", "retry-after", "content-type", "cache-control"];
      return { status, body: text, headers: names.map((name) => headers[name]) };
    },
  };
  const called: Door = {
    send: async (content, work) => {
      const submission = { id: "cart 7", fingerprint: content };
      const value = async () => ((await work()) === "unkept" ? "x".repeat(1_048_577) : {});
      try {
        return await lock.once(user, submission, value, { waitMs: 0 });
      } catch (error) {
        const { status, body, headers } = problemOf(error, "text/html") ?? {};
        const { "Cache-Control": cache, "Content-Type": type, ...more } = headers ?? {};
        return {
          status,
          body,
          headers: [more["Submit-Lock-Code"], more["Retry-After"], type, cache],
        };
      }
    },
  };
  return { store, lock, user, guarded, called };
}

type Doors = ReturnType<typeof openDoors>;

/** How a second submission is refused; `send` sends it by one of the doors. */
const refused: [code: string, (door: Door, doors: Doors) => Promise<unknown>][] = [
  [
    "submit_contended",
    async (door, { lock, user }) => {
      const lease = await leaseOf(lock, user);
      const refusal = await door.send("a", () => expect.fail("it ran"));
      await lease.release();
      return refusal;
    },
  ],
  [
    "submit_contended",
    async (door, { lock, user }) => {
      await (await leaseOf(lock, user)).release({ cooldownMs: 29_500 });
      return await door.send("a", () => expect.fail("it ran"));
    },
  ],
  [
    "idempotency_in_flight",
    async (door, { lock, user }) => {
      let end = (): void => {};
      const first = door.send("a", () => new Promise<void>((resolve) => (end = resolve)));
      await until(async () => (await lock.inspect(user)).state === "held", { what: "the first" });
      const refusal = await door.send("a", () => expect.fail("it ran"));
      end();
      await first;
      return refusal;
    },
  ],
  [
    "idempotency_conflict",
    async (door, { lock, user }) => {
      await door.send("a", () => {});
      await until(async () => (await lock.inspect(user)).state === "free", { what: "its end" });
      return await door.send("b", () => expect.fail("it ran"));
    },
  ],
  [
    "idempotency_answer_unavailable",
    async (door, { lock, user }) => {
      await door.send("a", () => "unkept");
      await until(async () => (await lock.inspect(user)).state === "free", { what: "its end" });
      return await door.send("a", () => expect.fail("it ran"));
    },
  ],
  [
    "submit_unavailable",
    async (door, { store }) => {
      store.play("unreachable");
      return await door.send("a", () => expect.fail("it ran"));
    },
  ],
];

test("an abort that a lost lease has caused is the answer for that lease, and no other error is", async () => {
  const store = new MemoryStore();
  const lock = openLock({ store, ttlMs: 800, maxHoldMs: 800, acquireTimeoutMs: 400 });
  const aborted = await lock
    .once(freshUser(), { id: "1" }, ({ signal }) => sleep(10_000, 1, { signal }))
    .catch((error) => error);
  expect(aborted).toMatchObject({ name: "AbortError" });
  const lost = { status: 503, code: "submit_lock_lost" };
  expect(problemOf(aborted)).toMatchObject(lost);
  expect(problemOf(new Error("the payment failed", { cause: aborted }))).toMatchObject(lost);
  const contended = new LockContendedError("another one's", 1);
  for (const cause of [contended, new LockClosedError("closed"), "text", undefined]) {
    expect(problemOf(new Error("the payment failed", { cause }))).toBe(undefined);
  }
  const circle = new Error("a circle");
  circle.cause = circle;
  expect(problemOf(circle)).toBe(undefined);
});

test.each(refused)("%s of once is what the guard answers (%#)", async (code, refuse) => {
  const [one, other] = [openDoors(), openDoors()];
  const ofGuard = await refuse(one.guarded, one);
  expect(ofGuard).toMatchObject({ headers: expect.arrayContaining([code]) });
  expect(await refuse(other.called, other)).toEqual(ofGuard);
});

describe("the problem of an error", () => {
  test("that ended without a value asks to look for the effect", async () => {
    const { lock, user } = openDoors();
    let fail = (_: Error): void => {};
    const work = () => new Promise<never>((_, reject) => (fail = reject));
    const first = lock.once(user, { id: "7" }, work);
    await until(async () => (await lock.inspect(user)).state === "held", { what: "the first" });
    const second = lock.once(user, { id: "7" }, () => expect.fail("it ran"));
    await until(() => lock.stats().waiting === 1, { what: "the second to wait" });
    fail(new Error("no goods"));
    await expect(first).rejects.toThrow("no goods");
    const problem = problemOf(await second.catch((error: unknown) => error));
    expect(JSON.parse(problem?.body ?? "")).toMatchObject({
      status: 409,
      code: "idempotency_in_flight",
      detail: expect.stringContaining("Check whether it succeeded"),
    });
  });

  test.each([
    new LockLostError("at 10.0.0.7", "expired", "lock:submit:42"),
    new LockMisconfiguredError("at 10.0.0.7"),
    new LockClosedError("at 10.0.0.7"),
    new NoFingerprintError("at 10.0.0.7", { status: 422 }),
    new NoFingerprintError("at 10.0.0.7", { status: 415 }),
  ])("%s has its status and its code, and nothing of its text", (error) => {
    const { body = "", headers, status } = problemOf(error) ?? {};
    expect(status).toBe(error.status);
    expect(headers).toMatchObject({ ...error.headers });
    expect(JSON.parse(body)).toMatchObject({ status, code: error.headers?.["Submit-Lock-Code"] });
    expect(body).not.toContain(error.message);
  });

  test.each([
    new Error("no goods"),
    "thrown",
    undefined,
    new InvalidOptionError("an option"),
    new InvalidValueError("a BigInt"),
    new NoFingerprintError("no parser was mounted"),
  ])("%s is none: the application's own handler answers", (error) => {
    expect(problemOf(error)).toBeUndefined();
    expect(isSubmitLockError(error)).toBe(/Option|Value|Fingerprint/.test(`${error}`));
  });
});

test("title and detail are those of the document, for a page too", () => {
  const error = new LockClosedError("closed");
  const problem = problemOf(error) ?? expect.fail("none");
  const { title, detail, status, code } = problem;
  expect(JSON.parse(problem.body)).toEqual({ type: "about:blank", title, status, detail, code });
  const { headers, ...page } = problemOf(error, "text/html") ?? expect.fail("none");
  expect(page).toMatchObject({ title, detail, status, code });
  expect(headers["Content-Type"]).toContain("text/html");
});

test.each([null, undefined])("an Accept that is %s prefers nothing", (accept) => {
  const { headers } = problemOf(new LockClosedError("closed"), accept) ?? expect.fail("none");
  expect(headers["Content-Type"]).toContain("application/problem+json");
});

test("a guard's own functions get them, to add a member of their own", async () => {
  const lock = openLock({ store: new MemoryStore() });
  const guard = submitGuard({
    lock,
    userId: () => undefined,
    onAnonymous: (_req, res, _next, { problem: { headers, status, title, detail } }) => {
      res.writeHead(status, headers).end(JSON.stringify({ title, detail, shop: "7" }));
    },
  });
  const app = express().post("/orders", guard);
  const { text } = await supertest(app).post("/orders");
  const detail = expect.stringContaining("You are not signed in");
  expect(JSON.parse(text)).toEqual({ title: "Unauthorized", detail, shop: "7" });
});
