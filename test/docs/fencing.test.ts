import { PGlite } from "@electric-sql/pglite";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { type Lease, MemoryStore, RedisStore } from "../../src/index.ts";
import { closeClients, ioredis6, untilReady } from "../support/clients.ts";
import { freshUser } from "../support/ids.ts";
import { closeLocks, leaseOf, openLock } from "../support/locks.ts";
import { sharedRedisPort } from "../support/redis-server.ts";
import { Page } from "./page.ts";

const { blocks } = new Page("docs/guide/transaction.md");

/** The one statement of `docs/guide/transaction.md` that begins like this. */
function statement(beginning: string): string {
  const found = blocks.filter(({ language, code }) => {
    return language === "sql" && code.startsWith(beginning);
  });
  if (found.length !== 1) throw new Error(`${found.length} blocks begin with ${beginning}`);
  return (found[0] as { code: string }).code.trim();
}

/** The SQL that the page on fencing shows: what is tested is what is read. */
const fencingSql = {
  tables: statement("CREATE TABLE carts"),
  begin: statement("UPDATE carts SET epoch"),
  end: statement("UPDATE carts SET status"),
  claim: statement("UPDATE carts SET fence"),
} as const;

describe("a shop's own database", () => {
  let db: PGlite;
  beforeAll(async () => {
    db = new PGlite();
    await db.exec(fencingSql.tables);
  });
  afterAll(() => db.close());
  afterEach(async () => {
    await closeLocks();
    closeClients();
  });

  async function freshCart(): Promise<string> {
    const cart = `cart-${freshUser()}`;
    await db.query("INSERT INTO carts (id) VALUES ($1)", [cart]);
    return cart;
  }

  /** How many rows a statement has changed or given. */
  async function rowsOf(sql: string, ...values: unknown[]): Promise<number> {
    const { affectedRows = 0, rows } = await db.query(sql, values);
    return Math.max(affectedRows, rows.length);
  }

  async function placed(cart: string, by: string): Promise<number> {
    return rowsOf("INSERT INTO orders (cart, placed_by) VALUES ($1, $2)", cart, by);
  }

  async function placedBy(cart: string): Promise<unknown[]> {
    const sql = "SELECT placed_by FROM orders WHERE cart = $1";
    const { rows } = await db.query<{ placed_by: string }>(sql, [cart]);
    return rows.map((row) => row.placed_by);
  }

  describe("P11: the database counts", () => {
    const begin = async (cart: string) => {
      const { rows } = await db.query<{ epoch: number }>(fencingSql.begin, [cart]);
      return rows[0]?.epoch;
    };

    test("one that was overtaken is refused, and the newer order stands", async () => {
      const cart = await freshCart();
      const [older, newer] = [await begin(cart), await begin(cart)];
      expect([older, newer]).toEqual([1, 2]);
      expect(await rowsOf(fencingSql.end, cart, older)).toBe(0);
      expect(await rowsOf(fencingSql.end, cart, newer)).toBe(1);
      await placed(cart, "newer");
      expect(await rowsOf(fencingSql.end, cart, older)).toBe(0);
      expect(await placedBy(cart)).toEqual(["newer"]);
    });

    test("whoever comes after the order cannot begin", async () => {
      const cart = await freshCart();
      expect(await rowsOf(fencingSql.end, cart, await begin(cart))).toBe(1);
      expect(await begin(cart)).toBe(undefined);
    });

    test("two orders of one cart are impossible whatever the fence says", async () => {
      const cart = await freshCart();
      await placed(cart, "one");
      await expect(placed(cart, "another")).rejects.toThrow("orders_pkey");
    });
  });

  describe.each([
    [
      "RedisStore",
      async () => new RedisStore(await untilReady(ioredis6.connect(sharedRedisPort()))),
    ],
    ["MemoryStore", () => Promise.resolve(new MemoryStore())],
  ])("P11: the token of a lease on %s", (_name, open) => {
    async function twoLeases(): Promise<[older: Lease, newer: Lease]> {
      const [lock, user] = [openLock({ store: await open() }), freshUser()];
      const older = await leaseOf(lock, user);
      await older.release();
      return [older, await leaseOf(lock, user)];
    }

    test("keeps the earlier lease out once the later one was there", async () => {
      const [cart, [older, newer]] = [await freshCart(), await twoLeases()];
      const write = ({ fencingToken }: Lease) => rowsOf(fencingSql.claim, cart, fencingToken);
      for (const lease of [older, older, newer, newer]) expect(await write(lease)).toBe(1);
      expect(await write(older)).toBe(0);
    });

    test("is a number that JSON and a bigint of SQL give back unchanged", async () => {
      const [{ fencingToken }] = await twoLeases();
      expect(Number.isSafeInteger(fencingToken)).toBe(true);
      expect(JSON.parse(JSON.stringify({ fencingToken })).fencingToken).toBe(fencingToken);
      const { rows } = await db.query<{ token: number }>("SELECT $1::bigint AS token", [
        fencingToken,
      ]);
      expect(Number(rows[0]?.token)).toBe(fencingToken);
    });
  });

  test("the fence is the cart's: a cart that a wrong clock has closed hinders no other", async () => {
    const [closed, next] = [await freshCart(), await freshCart()];
    const inAnHour = Date.now() * 1_000 + 3_600_000_000;
    expect(await rowsOf(fencingSql.claim, closed, inAnHour)).toBe(1);
    expect(await rowsOf(fencingSql.claim, closed, Date.now() * 1_000)).toBe(0);
    expect(await rowsOf(fencingSql.claim, next, Date.now() * 1_000)).toBe(1);
  });

  test("without the table: a second run gets no row", async () => {
    await db.exec(
      "CREATE TEMP TABLE orders (number serial, user_id text, submission_id text UNIQUE)",
    );
    const insert = statement("INSERT INTO orders");
    for (const [id, rows] of [
      ["one", 1],
      ["one", 0],
      ["two", 1],
    ] as const) {
      expect(await rowsOf(insert, "ada", id)).toBe(rows);
    }
  });
});
