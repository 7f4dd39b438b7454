import { PGlite } from "@electric-sql/pglite";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { isSubmitLockError } from "../../src/index.ts";
import { identify, type SqlExecutor, SubmissionTable } from "../../src/sql/index.ts";
import { newer } from "../http/frameworks.ts";
import { codeOf, onAll, openOnce, orderKey } from "../http/once-shop.ts";
import type { Turn } from "../http/turn.ts";
import { ioredis6 } from "../support/clients.ts";
import { command } from "../support/command.ts";
import { freshUser } from "../support/ids.ts";
import { forTest, startRedis } from "../support/redis-server.ts";
import { until } from "../support/until.ts";

const db = new PGlite();
const table = new SubmissionTable();
beforeAll(async () => {
  await db.exec(`CREATE TABLE orders (number serial, buyer text, cups int); ${table.ddl}`);
});
afterAll(() => db.close());

/** Places an order, and answers an error of ours by itself. */
async function placeOrder(turn: Turn): Promise<void> {
  const { cups } = turn.parsed as { cups: number };
  try {
    const { value } = await db.transaction((tx) =>
      table.once(tx, turn.submission, async () => {
        const buyer = turn.req.headers["x-user"];
        const text = "INSERT INTO orders (buyer, cups) VALUES ($1, $2) RETURNING number";
        return (await tx.query<{ number: number }>(text, [buyer, cups])).rows[0];
      }),
    );
    turn.answer(201, { ...value });
  } catch (error) {
    if (!isSubmitLockError(error) || error.code !== "SUBMIT_LOCK_MISMATCHED") throw error;
    turn.answer(422, { mine: error.code });
  }
}

async function cupsOf(buyer: string): Promise<number[]> {
  const { rows } = await db.query<{ cups: number }>("SELECT cups FROM orders WHERE buyer = $1", [
    buyer,
  ]);
  return rows.map(({ cups }) => cups);
}

test("a Transaction of PGlite is an executor as it is, and PGlite itself is refused", async () => {
  const buyer = freshUser();
  const submission = identify(buyer, { id: "order", fingerprint: "one cup" });
  const place = async (tx: SqlExecutor) => {
    await tx.query("INSERT INTO orders (buyer, cups) VALUES ($1, 1)", [buyer]);
    return "placed";
  };
  const order = (of = submission) => db.transaction((tx) => table.once(tx, of, () => place(tx)));
  const required = { code: "SUBMIT_LOCK_TRANSACTION_REQUIRED" };
  await expect(table.once(db, submission, () => place(db))).rejects.toMatchObject(required);
  expect(await cupsOf(buyer)).toEqual([]);
  const failed = db.transaction((tx) =>
    table.once(tx, submission, async () => {
      await place(tx);
      throw new Error("declined");
    }),
  );
  await expect(failed).rejects.toThrow("declined");
  expect(await order()).toEqual({ value: "placed", replayed: false, ageMs: 0 });
  expect(await order()).toMatchObject({ value: "placed", replayed: true });
  const other = identify(buyer, { id: "order", fingerprint: "two cups" });
  await expect(order(other)).rejects.toMatchObject({ code: "SUBMIT_LOCK_MISMATCHED" });
  expect(await cupsOf(buyer)).toEqual([1]);
  expect(await table.prune(db, { olderThanMs: 86_400_000 })).toBe(false);
});

const frameworks = [...onAll, ...newer].filter((each, at, all) => all.indexOf(each) === at);

describe.each(frameworks)('without Redis, under "proceed", on $name', (framework) => {
  test("a request has its submission, clicks are one order, and other content is 422", async () => {
    const server = await forTest(startRedis());
    const seen: unknown[] = [];
    const { shop, submit, begin } = await openOnce({
      framework,
      redis: ioredis6.connect(server.port, { retryStrategy: () => 20 }),
      times: { acquireTimeoutMs: 300, commandTimeoutMs: 150 },
      guard: { onUnavailable: "proceed", idempotency: { key: "required", store: "final" } },
      handler: async (turn) => {
        seen.push(turn.lease, turn.submission);
        await placeOrder(turn);
      },
    });
    await server.kill();
    const order = { key: orderKey, body: { cups: 1 } };
    const replies = await Promise.all([begin(order).reply, begin(order).reply]);
    expect(replies.map(({ status }) => status)).toEqual([201, 201]);
    expect(replies[0]?.body).toBe(replies[1]?.body);
    const submission = {
      id: expect.stringMatching(/^[\w-]{22}$/),
      fingerprint: expect.stringMatching(/^[\w-]{22}$/),
      source: "key",
    };
    expect(seen).toEqual([undefined, expect.objectContaining(submission), undefined, seen[1]]);
    const other = await submit({ key: orderKey, body: { cups: 2 } });
    expect([other.status, other.body]).toEqual([422, '{"mine":"SUBMIT_LOCK_MISMATCHED"}']);
    expect(codeOf(await submit({ body: { cups: 3 } }))).toBe("idempotency_key_required");
    expect(await cupsOf(shop.user)).toEqual([1]);
  });
});

describe.each(frameworks)("a Redis that has forgotten, on $name", (framework) => {
  test('other content is 422, and the rightful content is answered, with store: "final"', async () => {
    const server = await forTest(startRedis());
    const redis = ioredis6.connect(server.port, {});
    const { shop, submit } = await openOnce({
      framework,
      redis,
      guard: { idempotency: { key: "required", store: "final" } },
      handler: placeOrder,
    });
    const order = { key: orderKey, body: { cups: 1 } };
    const isFree = async () => (await command(server.port, "EXISTS", shop.key)) === 0;
    const first = await submit(order);
    await until(isFree, { what: "the record" });
    await command(server.port, "FLUSHALL");
    const other = await submit({ key: orderKey, body: { cups: 2 } });
    expect([other.status, other.body]).toEqual([422, '{"mine":"SUBMIT_LOCK_MISMATCHED"}']);
    await until(isFree, { what: "the release" });
    // The refusal was not kept: it would be the answer of the other content for a day.
    const again = await submit(order);
    expect([again.status, again.body]).toEqual([first.status, first.body]);
    expect(await cupsOf(shop.user)).toEqual([1]);
  });
});
