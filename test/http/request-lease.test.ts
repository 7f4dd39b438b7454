import { once } from "node:events";
import { inspect } from "node:util";
import { describe, expect, test } from "vitest";
import type { Lease } from "../../src/index.ts";
import { command } from "../support/command.ts";
import { sharedRedisPort } from "../support/redis-server.ts";
import { until } from "../support/until.ts";
import { type Framework, newestOnBoth } from "./frameworks.ts";
import { openShop } from "./shop.ts";

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
      times: { ttlMs: 2_000, acquireTimeoutMs: 1_000, commandTimeoutMs: 500 },
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
