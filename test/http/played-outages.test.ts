import express, { type RequestHandler } from "express";
import supertest from "supertest";
import { afterEach, describe, expect, test } from "vitest";
import { submitGuard } from "../../src/express/index.ts";
import { MemoryStore, type Outage } from "../../src/index.ts";
import { freshUser } from "../support/ids.ts";
import { closeLocks, openLock } from "../support/locks.ts";
import { until } from "../support/until.ts";

afterEach(closeLocks);

const never = () => expect.fail("it ran");

/** A shop whose store plays `outage` while an order is placed, or never. */
function openShop(during?: Outage) {
  const store = new MemoryStore();
  const lock = openLock({ store, ttlMs: 1_000, acquireTimeoutMs: 400, commandTimeoutMs: 100 });
  const [user, placed] = [freshUser(), { count: 0 }];
  const place: RequestHandler = async (_req, res) => {
    if (during !== undefined) store.play(during);
    res.status(201).json({ order: ++placed.count });
  };
  const guard = submitGuard({ lock, userId: () => user, idempotency: {} });
  const app = express().use(express.json()).post("/orders", guard.protect(place));
  const submit = (key: string) =>
    supertest(app).post("/orders").set("Idempotency-Key", key).send({ cart: 7 });
  const isFree = async () => (await lock.inspect(user)).state === "free";
  return { store, lock, user, placed, submit, isFree };
}

describe.each<Outage>(["silent", "unreachable", "replies-lost"])(
  "MemoryStore plays %j",
  (outage) => {
    test("a guard answers 503, nothing runs, and the order goes through afterwards", async () => {
      const { store, placed, submit, isFree } = openShop();
      store.play(outage);
      const refused = await submit("k");
      expect([refused.status, refused.headers["submit-lock-code"]]).toEqual([
        503,
        "submit_unavailable",
      ]);
      store.play("none");
      await until(isFree, { what: "what the attempt left to be gone" });
      expect((await submit("k")).status).toBe(201);
      expect(placed.count).toBe(1);
    });

    test("withLock, once and inspect reject as with Redis, and work again afterwards", async () => {
      const { store, lock, user, isFree } = openShop();
      store.play(outage);
      const unavailable = { code: "SUBMIT_LOCK_UNAVAILABLE" };
      await expect(lock.withLock(user, never)).rejects.toMatchObject(unavailable);
      await expect(lock.once(user, { id: "7" }, never)).rejects.toMatchObject(unavailable);
      await expect(lock.inspect(user)).rejects.toMatchObject(unavailable);
      store.play("none");
      await until(isFree, { what: "what the attempts left to be gone" });
      expect(await lock.withLock(user, () => "done")).toBe("done");
      expect(await lock.once(user, { id: "7" }, () => 7)).toMatchObject({ value: 7 });
    });

    test("in the middle of an order, whose answer is kept once the outage is over", async () => {
      const { store, placed, submit, isFree } = openShop(outage);
      expect((await submit("k")).status).toBe(201);
      store.play("none");
      await until(isFree, { what: "the complete to come through" });
      const again = await submit("k");
      expect([again.status, again.body, again.headers["idempotent-replayed"]]).toEqual([
        201,
        { order: 1 },
        "true",
      ]);
      expect(placed.count).toBe(1);
    });
  },
);

test("an attempt is not executed when silent or unreachable, and is when replies are lost", async () => {
  const seen = [];
  for (const outage of ["silent", "unreachable", "replies-lost"] as const) {
    const { store, lock, user } = openShop();
    store.play(outage);
    const attempt = lock.acquire(user);
    store.play("none");
    seen.push((await lock.inspect(user)).state);
    await attempt;
  }
  expect(seen).toEqual(["free", "free", "held"]);
});

test("an outage that does not exist is refused by its name", () => {
  const play = () => new MemoryStore().play("slow" as Outage);
  expect(play).toThrow(
    'outage: expected "silent", "unreachable", "replies-lost", "none", got "slow"',
  );
});
