import { afterEach, describe, expect, test } from "vitest";
import { command } from "../support/command.ts";
import { freshUser } from "../support/ids.ts";
import { acquired } from "../support/locks.ts";
import { sharedRedisPort } from "../support/redis-server.ts";
import { all, catchesAnything, type Framework } from "./frameworks.ts";
import { closeShops, openShop } from "./shop.ts";
import type { Turn } from "./turn.ts";

afterEach(closeShops);

/** A shop whose every request is of this user, under a prefix that nobody else uses. */
async function shopOf(framework: Framework, userId: () => unknown) {
  const keyPrefix = `lock:${freshUser()}:`;
  const seen: (string | undefined)[] = [];
  const handler = (turn: Turn) => {
    seen.push(turn.lease?.key.slice(keyPrefix.length));
    turn.answer(201, { order: "placed" });
  };
  const shop = await openShop({ framework, handler, times: { keyPrefix }, guard: { userId } });
  const keys = () => command(sharedRedisPort(), "KEYS", `${keyPrefix}*`);
  return { shop, seen, keys };
}

describe.each(all.filter(({ http }) => http === 1))("$name", (framework: Framework) => {
  test.each([
    ["NaN", Number.NaN, "NaN"],
    ["a fraction", 1.5, "a fraction"],
    ["an unsafe integer", 2 ** 53, "an unsafe integer"],
    ["an object", { id: 42 }, "an object: pass the id that it holds"],
    ["an array", ["42"], "an array"],
    ["a boolean", true, "a boolean"],
    ["10 000 characters", "x".repeat(10_000), "a string of 10000 characters"],
    ["a lone surrogate", "user-\ud800", "a string with a lone surrogate"],
  ])("%s as a user id is a coded error, and leaves nothing behind", async (_what, id, came) => {
    const { shop, seen, keys } = await shopOf(framework, () => id);
    const reply = await shop.submit().reply;
    expect(reply.status).toBe(500);
    expect(shop.errors).toMatchObject([
      { code: "SUBMIT_LOCK_INVALID_USER_ID", message: expect.stringContaining(`got ${came}`) },
    ]);
    expect(seen).toEqual([]);
    expect(await keys()).toEqual([]);
  });

  test.each([
    ["undefined", undefined],
    ["null", null],
    ["an empty string", ""],
  ])("%s as a user id is anonymous, and leaves nothing behind", async (_what, id) => {
    const { shop, seen, keys } = await shopOf(framework, async () => id);
    expect((await shop.submit().reply).status).toBe(401);
    expect(shop.errors).toEqual([]);
    expect(seen).toEqual([]);
    expect(await keys()).toEqual([]);
  });

  test.each([
    ["../", "..%2F"],
    ["{42}", "%7B42%7D"],
    ["a\r\nb", "a%0D%0Ab"],
    ["a:b", "a%3Ab"],
    ["o'brien@example.org", "o%27brien@example.org"],
  ])("%j as a user id is a key without special characters", async (id, key) => {
    const { shop, seen } = await shopOf(framework, () => id);
    expect((await shop.submit().reply).status).toBe(201);
    expect(seen).toEqual([key]);
  });

  test.each([
    ["a number", 42],
    ["a bigint", 42n],
    ["a promise", Promise.resolve("42")],
  ])('"42" and %s are one user', async (_what, id) => {
    const { shop } = await shopOf(framework, () => id);
    const { lease } = acquired(await shop.lock.acquire("42"));
    expect((await shop.submit().reply).status).toBe(409);
    await lease.release();
    expect((await shop.submit().reply).status).toBe(201);
  });

  test.each([
    [
      "throws",
      () => {
        throw new Error("no session store");
      },
    ],
    ["rejects", () => Promise.reject(new Error("no session store"))],
  ])("a userId that %s reaches the error handler, and nothing is locked", async (_what, userId) => {
    const { shop, seen, keys } = await shopOf(framework, userId);
    expect((await shop.submit().reply).status).toBe(500);
    expect(shop.errors).toEqual([new Error("no session store")]);
    expect(seen).toEqual([]);
    expect(await keys()).toEqual([]);
  });

  test.runIf(catchesAnything(framework)).each([undefined, null, "route", "router"])(
    "a userId that rejects with %j starts no handler",
    async (reason) => {
      const { shop, seen, keys } = await shopOf(framework, () => Promise.reject(reason));
      expect((await shop.submit().reply).status).toBe(500);
      expect(shop.errors).toHaveLength(1);
      expect(seen).toEqual([]);
      expect(await keys()).toEqual([]);
    },
  );

  test("a skip that rejects reaches the error handler, and nothing is locked", async () => {
    const shop = await openShop({
      framework,
      handler: (turn) => turn.answer(201, {}),
      guard: { skip: () => Promise.reject(new Error("no flags")) },
    });
    expect((await shop.submit().reply).status).toBe(500);
    expect(shop.errors).toEqual([new Error("no flags")]);
    expect(shop.work.started).toBe(0);
    expect(await shop.owner()).toBeNull();
  });
});
