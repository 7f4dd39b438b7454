import { identify } from "submit-lock/sql";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { PaymentProvider } from "../../../examples/demo/payments/provider.ts";
import { cartOf, refillCart } from "../../../examples/demo/shop/carts.ts";
import { type Database, openDatabase } from "../../../examples/demo/shop/database.ts";
import { Payments } from "../../../examples/demo/shop/payments.ts";
import { type Checkout, placeOrder } from "../../../examples/demo/shop/place-order.ts";
import { placeOrder as placeOfShops } from "../../../examples/orders.ts";
import { until } from "../../support/until.ts";

const userId = "ada";
let db: Database;
let provider: PaymentProvider;
let payments: Payments;

beforeAll(async () => {
  db = await openDatabase(undefined);
});
afterAll(() => db.close());

beforeEach(async () => {
  provider = new PaymentProvider({ latencyMs: 0 });
  payments = new Payments(await provider.listen());
  await refillCart(db, userId);
  return () => provider.close();
});

/** What a guard gives to a handler. */
function given(id: string | undefined, fencingToken?: number): Omit<Checkout, "userId"> {
  const { signal } = new AbortController();
  const submission = id === undefined ? undefined : identify(userId, { id });
  return { submission, lease: { signal, fencingToken } };
}

async function rows(table: "orders" | "outbox"): Promise<Record<string, unknown>[]> {
  const column = table === "orders" ? "number" : "order_number";
  return await db.query(
    `SELECT * FROM demo_shop.${table} WHERE ${column} IN
       (SELECT number FROM demo_shop.orders WHERE cart_id = $1)`,
    [(await cartOf(db, userId)).id],
  );
}

async function pieces(): Promise<number> {
  const sum = "SELECT sum(pieces)::int AS pieces FROM demo_shop.stock";
  return (await db.query<{ pieces: number }>(sum))[0]?.pieces as number;
}

describe("an order of the example shop", () => {
  test("is paid once, empties the cart and is told in the outbox", async () => {
    const seen = await cartOf(db, userId);
    const order = await placeOrder({ db, payments }, { userId, seen, ...given("a-1", 1) });
    expect(order).toMatchObject({ cart: seen.id, cents: 3_830, paymentId: "pay-1" });
    expect(provider.charges).toHaveLength(1);
    expect(await cartOf(db, userId)).toEqual({ id: seen.id, version: seen.version + 1, items: [] });
    expect(await rows("outbox")).toMatchObject([
      { topic: "order.placed" },
      { topic: "order.paid" },
    ]);
  });

  test("is found by a second run of its submission, which neither orders nor charges", async () => {
    const seen = await cartOf(db, userId);
    const run = (token: number) =>
      placeOrder({ db, payments }, { userId, seen, ...given("b-1", token) });
    const first = await run(1);
    const left = await pieces();
    expect(await run(2)).toEqual(first);
    expect(await pieces()).toBe(left);
    expect(await rows("orders")).toHaveLength(1);
    expect(provider.charges).toHaveLength(1);
  });

  test("that lost the replies of its payment is gone on with, and charged once", async () => {
    const seen = await cartOf(db, userId);
    provider.behaviour.losesReply = () => true;
    const checkout = { userId, seen, ...given("c-1", 1) };
    await expect(placeOrder({ db, payments }, checkout)).rejects.toMatchObject({ status: 504 });
    expect(await rows("orders")).toMatchObject([{ payment_id: null }]);
    expect(await rows("outbox")).toMatchObject([{ topic: "order.placed" }]);
    provider.behaviour.losesReply = () => false;
    const order = await placeOrder({ db, payments }, { ...checkout, ...given("c-1", 2) });
    expect(order.paymentId).toBe("pay-1");
    expect(provider.charges).toHaveLength(1);
    expect(await rows("orders")).toHaveLength(1);
  });

  test("is not finished by a process that was paused beyond its lease", async () => {
    const seen = await cartOf(db, userId);
    // The older one waits for its payment while the newer one comes and finishes.
    provider.behaviour.latencyMs = 300;
    const older = placeOrder({ db, payments }, { userId, seen, ...given("d-old", 10) });
    const outcome = older.catch((error: unknown) => error);
    const isBegun = async () => (await rows("orders")).length === 1;
    await until(isBegun, { what: "the older order" });
    await db.query("UPDATE demo_shop.carts SET fence = 11 WHERE id = $1", [seen.id]);
    expect(await outcome).toMatchObject({ status: 409, code: "cart_changed" });
    expect(await rows("outbox")).toMatchObject([{ topic: "order.placed" }]);
    // Nor is one begun.
    const late = placeOrder({ db, payments }, { userId, seen, ...given("d-late", 10) });
    await expect(late).rejects.toMatchObject({ status: 409 });
  });

  test("is refused where the customer saw another cart, or an empty one", async () => {
    const seen = await cartOf(db, userId);
    const run = (version: number) =>
      placeOrder({ db, payments }, { userId, seen: { id: seen.id, version }, ...given("e") });
    await expect(run(seen.version + 1)).rejects.toMatchObject({ code: "cart_changed" });
    const strangers = { userId: "grace", seen, ...given("f") };
    await expect(placeOrder({ db, payments }, strangers)).rejects.toMatchObject({ status: 409 });
    await placeOrder({ db, payments }, { userId, seen, ...given("g") });
    const again = placeOrder({ db, payments }, { userId, seen, ...given("h") });
    await expect(again).rejects.toMatchObject({ status: 422, code: "cart_empty" });
  });

  test("and its row of the outbox are one transaction", async () => {
    const seen = await cartOf(db, userId);
    const failing: Database = {
      ...db,
      transaction: (work) =>
        db.transaction((tx) =>
          work({
            query: (text, values) =>
              text.includes("outbox") ? Promise.reject(new Error("full")) : tx.query(text, values),
          }),
        ),
    };
    const checkout = { userId, seen, ...given("i", 1) };
    const before = await pieces();
    await expect(placeOrder({ db: failing, payments }, checkout)).rejects.toThrow("full");
    expect(await rows("orders")).toEqual([]);
    expect(await pieces()).toBe(before);
    expect((await cartOf(db, userId)).items).toHaveLength(3);
  });

  test("stops where its lock is lost", async () => {
    const seen = await cartOf(db, userId);
    provider.behaviour.latencyMs = 60_000;
    const lost = new AbortController();
    const lease = { signal: lost.signal, fencingToken: 1 };
    const order = placeOrder({ db, payments }, { userId, seen, ...given("j"), lease });
    await until(async () => (await rows("orders")).length === 1, { what: "the order" });
    lost.abort(new Error("lost"));
    await expect(order).rejects.toThrow("lost");
    expect(await rows("outbox")).toMatchObject([{ topic: "order.placed" }]);
  });
});

test("a shop to copy stops its payment when the lock is lost, and the retry pays", async () => {
  const submission = identify(userId, { id: "a shop to copy" });
  const lost = new AbortController();
  const placed = placeOfShops(userId, submission, lost.signal);
  setTimeout(() => lost.abort(new Error("the lock was lost")), 250);
  await expect(placed).rejects.toThrow("the lock was lost");
  const { signal } = new AbortController();
  expect(await placeOfShops(userId, submission, signal)).toBe(1);
});
