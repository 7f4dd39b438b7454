// Tests of a shop behind the guard, without Redis: copy them, and put your own shop in the place of
// `./app.ts`, or of `./koa-app.ts`.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, beforeEach, test } from "node:test"; // or Jest's, Vitest's
import { setTimeout as sleep } from "node:timers/promises";
import { MemoryStore, SubmitLock } from "submit-lock";
import request from "supertest";
import { createApp, DeclinedError } from "./app.ts";

const store = new MemoryStore();
const lock = new SubmitLock({ store, ttlMs: 1_000 });
after(() => lock.close());

let user = "";
let charges = 0;
let goOn = () => {};
let pay: (signal?: AbortSignal) => Promise<unknown>;
beforeEach(() => {
  user = randomUUID();
  charges = 0;
  pay = async () => {};
});
const payWhenTold = () =>
  new Promise<void>((resolve) => {
    goOn = resolve;
  });

const charge = async (signal?: AbortSignal) => {
  await pay(signal);
  charges += 1;
};
const app = createApp(lock, charge, { retainMs: 1_000 }); // in place of a day

// Async, or supertest sends nothing before it is awaited.
const click = async ({ key = "k-1", cart = 7, by = user } = {}) => {
  const asked = request(app).post("/orders").set("x-user-id", by).set("idempotency-key", key);
  return await asked.send({ cart });
};
const until = async (isSo: () => boolean) => {
  while (!isSo()) await sleep(5);
};
const isUnderWay = () => lock.stats().held === 1;
const isWaiting = () => lock.stats().waiting === 1;
const nothingIsInFlight = () => {
  const { attempting, held, retiring } = lock.stats();
  return attempting + held + retiring === 0;
};

test("a double click is one order, and a late retry gets its answer", async () => {
  pay = payWhenTold;
  const first = click();
  await until(isUnderWay);
  const second = click();
  await until(isWaiting); // without this line the second click may be a late one
  goOn();
  assert.equal((await first).status, 201);
  assert.equal((await second).text, (await first).text);
  await until(nothingIsInFlight);
  const late = await click();
  assert.equal(late.headers["idempotent-replayed"], "true");
  assert.equal(charges, 1);
});

test("after retainMs the same click is another order", async () => {
  await click();
  await sleep(1_200);
  assert.equal((await click()).headers["idempotent-replayed"], undefined);
  assert.equal(charges, 2);
});

test("another order and other content are refused meanwhile", async () => {
  pay = payWhenTold;
  const first = click();
  await until(isUnderWay);
  assert.equal((await click({ key: "k-2" })).headers["submit-lock-code"], "submit_contended");
  assert.equal((await click({ cart: 8 })).headers["submit-lock-code"], "idempotency_conflict");
  goOn();
  assert.equal((await first).status, 201);
  assert.equal(charges, 1);
});

test("two customers with the same key are two orders", async () => {
  const both = await Promise.all([click(), click({ by: randomUUID() })]);
  assert.deepEqual(
    both.map(({ status }) => status),
    [201, 201],
  );
  assert.equal(charges, 2);
});

test("a customer who is not signed in is refused", async () => {
  assert.equal((await click({ by: "" })).status, 401);
});

test("a declined card is not kept: the same order goes through with another one", async () => {
  pay = () => Promise.reject(new DeclinedError());
  assert.equal((await click()).status, 402);
  pay = async () => {};
  assert.equal((await click({ cart: 8 })).status, 201);
});

test("while the store is away an order is refused, and one under way is answered", async () => {
  pay = payWhenTold;
  const order = click();
  await until(isUnderWay);
  store.play("silent"); // or "unreachable", or "replies-lost"
  goOn();
  assert.equal((await order).status, 201);
  assert.equal((await click({ by: randomUUID() })).status, 503);
  store.play("none");
  await until(nothingIsInFlight);
  assert.equal((await click()).headers["idempotent-replayed"], "true");
  assert.equal(charges, 1);
});

test("an order whose lease is lost stops, and answers 503", async () => {
  pay = (signal) => sleep(60_000, undefined, { signal });
  const order = click();
  await until(isUnderWay);
  const found = await lock.inspect(user);
  assert.equal(found.state, "held");
  if (found.state !== "held") return;
  await lock.free(user, { id: found.id, by: "a test", reason: "a test", now: true });
  assert.equal((await order).status, 503);
  assert.equal(charges, 0);
});

test("no lock is left", async () => {
  await click();
  await until(nothingIsInFlight);
  assert.equal((await lock.inspect(user)).state, "free");
});
