import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { ioredis6 } from "../support/clients.ts";
import { type RedisProxy, startProxy } from "../support/proxy.ts";
import { sharedRedisPort } from "../support/redis-server.ts";
import { until } from "../support/until.ts";
import { all, type Framework } from "./frameworks.ts";
import { closeShops, openShop } from "./shop.ts";

let proxy: RedisProxy;
beforeEach(async () => {
  proxy = await startProxy(sharedRedisPort());
});
afterEach(async () => {
  await closeShops();
  await proxy.stop();
});

/** A shop whose connection to Redis is up, and what has passed the proxy since. */
async function warmShop(framework: Framework, duringWork: () => void = () => {}) {
  const shop = await openShop({
    framework,
    redis: ioredis6.connect(proxy.port),
    handler: async (turn, work) => {
      duringWork();
      work.overNow();
      turn.answer(201, { order: "placed" });
    },
  });
  await shop.lock.check();
  const before = proxy.commands.length;
  return { shop, commands: () => proxy.commands.slice(before) };
}

describe.each(all)("$name", (framework: Framework) => {
  test("a submit costs one command before its handler, and one when it is over", async () => {
    let beforeTheWork = 0;
    const { shop, commands } = await warmShop(framework, () => {
      beforeTheWork = commands().length;
    });
    expect((await shop.submit().reply).status).toBe(201);
    await shop.isOverAfter(1);
    expect(beforeTheWork).toBe(1);
    expect(commands().map(([name]) => name?.toLowerCase())).toEqual(["eval", "eval"]);
  });

  test("a submit that is contended costs one command", async () => {
    const { shop, commands } = await warmShop(framework);
    await shop.lock.acquire(shop.user);
    const before = commands().length;
    expect((await shop.submit().reply).status).toBe(409);
    expect(commands()).toHaveLength(before + 1);
  });

  test("the answer does not wait for the reply to the release", async () => {
    const { shop, commands } = await warmShop(framework, () => proxy.holdReplies());
    expect((await shop.submit().reply).status).toBe(201);
    await until(() => commands().length === 2, { what: "the release to be sent" });
    expect(shop.published.releases).toEqual([]);
    proxy.releaseHeld();
    await shop.isOverAfter(1);
  });
});
