import { once } from "node:events";
import { inspect } from "node:util";
import { describe, expect, test } from "vitest";
import type { Lease } from "../../src/index.ts";
import { command } from "../support/command.ts";
import { freshUser } from "../support/ids.ts";
import { acquired } from "../support/locks.ts";
import { sharedRedisPort } from "../support/redis-server.ts";
import { until } from "../support/until.ts";
import { catchesAnything, type Framework, newest, newestOnBoth } from "./frameworks.ts";
import { openShop } from "./shop.ts";
import type { Turn } from "./turn.ts";

describe.each(newestOnBoth)("$name", (framework: Framework) => {
  test("the lease of the request is the one that Redis knows", async () => {
    let lease: Lease | undefined;
    const shop = await openShop({
      framework,
      handler: async (turn, work) => {
        lease = turn.lease;
        expect(lease?.ownerId).toBe(await shop.owner());
        expect(lease?.key).toBe(shop.key);
        expect(lease?.signal.aborted).toBe(false);
        expect(lease?.remainingMs()).toBeGreaterThan(1_000);
        await work.over();
        turn.answer(201, {});
      },
    });
    expect((await shop.submit().reply).status).toBe(201);
    await shop.isOverAfter(1);
    expect(lease?.remainingMs()).toBe(0);
    expect(lease?.signal.aborted).toBe(false);
  });

  test("a handler that releases its lease early makes no second release", async () => {
    const shop = await openShop({
      framework,
      handler: async (turn, work) => {
        work.overNow();
        expect(await turn.lease?.release()).toBe("released");
        turn.answer(201, {});
      },
    });
    expect((await shop.submit().reply).status).toBe(201);
    await shop.isOverAfter(1);
  });

  test("the signal aborts when the key is overtaken, and the foreign key stays", async () => {
    const shop = await openShop({
      framework,
      // A third of it until it is noticed, and the rest for a busy machine.
      times: { ttlMs: 9_000, acquireTimeoutMs: 4_000, commandTimeoutMs: 2_000 },
      handler: async (turn, work) => {
        const signal = turn.lease?.signal as AbortSignal;
        await command(sharedRedisPort(), "SET", shop.key, "somebody else", "PX", 60_000);
        if (!signal.aborted) await once(signal, "abort");
        work.overNow();
        turn.answer(201, { stopped: signal.reason.code, because: signal.reason.reason });
      },
    });
    const reply = await shop.submit().reply;
    expect(reply).toMatchObject({
      status: 201,
      body: '{"stopped":"SUBMIT_LOCK_LOST","because":"overtaken"}',
    });
    await until(() => shop.published.releases.length === 1, { what: "the release" });
    expect(shop.published.releases).toMatchObject([{ outcome: "foreign" }]);
    expect(await shop.owner()).toBe("somebody else");
    await command(sharedRedisPort(), "DEL", shop.key);
  });

  test("a request that is logged does not show the owner id of its lease", async () => {
    const shown: string[] = [];
    let ownerId = "";
    const shop = await openShop({
      framework,
      handler: async (turn, work) => {
        ownerId = turn.lease?.ownerId ?? "";
        shown.push(inspect(turn.req, { depth: 9, showHidden: true }), JSON.stringify(turn.lease));
        await work.over();
        turn.answer(201, {});
      },
    });
    expect((await shop.submit().reply).status).toBe(201);
    expect(ownerId).toMatch(/^[0-9a-f-]{36}$/);
    expect(shown.filter((text) => text.includes(ownerId))).toEqual([]);
  });
});

/** A shop whose every request is of this user, under a prefix that nobody else uses. */
async function shopOf(framework: Framework, userId: () => unknown) {
  const keyPrefix = `lock:${freshUser()}:`;
  const seen: (string | undefined)[] = [];
  const handler = (turn: Turn) => {
    seen.push(turn.lease?.key.slice(keyPrefix.length));
    turn.answer(201, { order: "placed" });
  };
  const shop = await openShop({ framework, handler, times: { keyPrefix }, guard: { userId } });
  const keys = () => shop.redis.keys(`${keyPrefix}*`);
  return { shop, seen, keys };
}

describe.each(newest)("$name", (framework: Framework) => {
  /** Refused by the error handler, and nothing has begun. */
  async function isRefused(userId: () => unknown, error?: unknown): Promise<void> {
    const { shop, seen, keys } = await shopOf(framework, userId);
    expect((await shop.submit().reply).status).toBe(500);
    expect(shop.errors).toHaveLength(1);
    if (error !== undefined) expect(shop.errors).toEqual([error]);
    expect([seen, await keys()]).toEqual([[], []]);
  }

  test("an object as a user id is a coded error, and leaves nothing behind", async () => {
    const message = expect.stringContaining("got an object: pass the id that it holds");
    const error = expect.objectContaining({ code: "SUBMIT_LOCK_INVALID_USER_ID", message });
    await isRefused(() => ({ id: 42 }), error);
  });

  test.each([undefined, null, ""])(
    "%j as a user id is anonymous, and leaves nothing behind",
    async (id) => {
      const { shop, seen, keys } = await shopOf(framework, async () => id);
      expect((await shop.submit().reply).status).toBe(401);
      expect([shop.errors, seen, await keys()]).toEqual([[], [], []]);
    },
  );

  test.each([
    ["a bigint", 42n],
    ["a promise", Promise.resolve("42")],
  ])('"42" and %s are one user', async (_what, id) => {
    const { shop } = await shopOf(framework, () => id);
    const { lease } = acquired(await shop.lock.acquire("42"));
    expect((await shop.submit().reply).status).toBe(409);
    await lease.release();
    expect((await shop.submit().reply).status).toBe(201);
  });

  test.runIf(catchesAnything(framework)).each([undefined, null, "route", "router"])(
    "a userId that rejects with %j starts no handler",
    (reason) => isRefused(() => Promise.reject(reason)),
  );
});
