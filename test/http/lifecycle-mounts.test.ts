import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, describe, expect, test } from "vitest";
import { RedisStore } from "../../src/index.ts";
import { ioredis6 } from "../support/clients.ts";
import { closeLocks, openLock } from "../support/locks.ts";
import { sharedRedisPort } from "../support/redis-server.ts";
import { until } from "../support/until.ts";
import { all, type Framework, writesByHand } from "./frameworks.ts";
import { gate } from "./gate.ts";
import { anotherCopy, guardLayer, layerThatWaits } from "./layers.ts";
import { leavesAndRetries, type OrderWork, openShop, patientTimes, sharedRedis } from "./shop.ts";
import type { Layer, Turn } from "./turn.ts";

afterEach(closeLocks);

function lockOf(keyPrefix?: string) {
  const store = new RedisStore(sharedRedis());
  return openLock({ store, keyPrefix, ...patientTimes });
}

const place = async (turn: Turn, work: OrderWork) => {
  await sleep(5);
  await work.over();
  turn.answer(201, { order: "placed" });
};

describe.each(all)("rule 13: mounts, on $name", (framework: Framework) => {
  test("a guard round the whole application and one at the route take one lock", async () => {
    const shop = await openShop({ framework, handler: place, outside: [guardLayer(lockOf())] });
    expect((await shop.submit().reply).status).toBe(201);
    await shop.isOverAfter(1);
  });

  test("a guard of another copy of the package at the same request guards for itself", async () => {
    const copy = await anotherCopy();
    const lock = (keyPrefix?: string) => {
      const store = new copy.Store(ioredis6.connect(sharedRedisPort()));
      return new copy.SubmitLock({ store, keyPrefix, ...patientTimes });
    };
    const [same, other] = [lock(), lock("lock:outer:")];
    const apart = await openShop({ framework, handler: place, outside: [guardLayer(other, copy)] });
    expect((await apart.submit().reply).status).toBe(201);
    await apart.isOverAfter(1);
    const shop = await openShop({ framework, handler: place, outside: [guardLayer(same, copy)] });
    expect((await shop.submit().reply).status).toBe(409);
    expect(shop.work.started).toBe(0);
    await shop.keyIsGone();
    await Promise.all([same.close({ timeoutMs: 0 }), other.close({ timeoutMs: 0 })]);
  });

  test("an order under two guards keeps the lock when its client has left", async () => {
    await leavesAndRetries({
      framework,
      outside: [guardLayer(lockOf())],
      handler: async (turn, work, { started, goOn }) => {
        started();
        await goOn;
        await place(turn, work);
      },
    });
  });

  test("two guards with different keys hold both, and the request shows the inner lease", async () => {
    const outer = lockOf("lock:outer:");
    const keys: unknown[] = [];
    let user = "";
    let outerIsFree: boolean | undefined;
    const handler = async (turn: Turn, work: OrderWork) => {
      keys.push(turn.lease?.key);
      outerIsFree = (await outer.acquire(user)).outcome === "acquired";
      await place(turn, work);
    };
    const shop = await openShop({ framework, handler, outside: [guardLayer(outer)] });
    user = shop.user;
    expect((await shop.submit().reply).status).toBe(201);
    expect(keys).toEqual([shop.key]);
    expect(outerIsFree).toBe(false);
    await shop.isOverAfter(1);
    const attempt = () => outer.acquire(user);
    await expect.poll(async () => (await attempt()).outcome).toBe("acquired");
  });

  const left = "when their client has left and the response is ended";
  test.runIf(writesByHand(framework))(
    `two guards with different keys give both back ${left}`,
    async () => {
      const outer = lockOf("lock:outer:");
      const [started, left, goOn] = [gate(), gate(), gate()];
      const shop = await openShop({
        framework,
        outside: [guardLayer(outer)],
        handler: (turn, work) => {
          const res = turn.byHand();
          res.once("close", left.open);
          started.open();
          void goOn.opened.then(() => work.over()).then(() => res.end());
        },
      });
      const call = shop.submit();
      await started.opened;
      call.abort();
      await left.opened;
      expect((await outer.acquire(shop.user)).outcome).toBe("contended");
      goOn.open();
      await shop.isOverAfter(1);
      await until(async () => (await outer.acquire(shop.user)).outcome === "acquired", {
        what: "the outer lock to be free",
      });
    },
  );

  test("a lease that was lost is not borrowed: the second guard makes an attempt of its own", async () => {
    const outer = lockOf();
    const close = () => outer.close({ timeoutMs: 0 });
    const losing: Layer = {
      ...layerThatWaits(close),
      // Behind the outer guard, as no hook is.
      fastify: (_app, handler) =>
        async function (request, reply) {
          await close();
          return handler.call(this, request, reply);
        },
    };
    const layers = [guardLayer(outer), losing];
    const shop = await openShop({ framework, handler: place, outside: layers });
    // The key of the lost lease is still there, and it runs out by itself.
    expect((await shop.submit().reply).status).toBe(409);
    expect(shop.work.started).toBe(0);
  });
});
