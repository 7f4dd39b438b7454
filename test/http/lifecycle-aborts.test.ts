import { once } from "node:events";
import type { IncomingMessage } from "node:http";
import { connect } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { record } from "../support/channels.ts";
import { ioredis6 } from "../support/clients.ts";
import { startProxy } from "../support/proxy.ts";
import { forTest, sharedRedisPort } from "../support/redis-server.ts";
import { until } from "../support/until.ts";
import {
  all,
  blind,
  type Framework,
  newer,
  newest,
  onHttp1,
  seeing,
  writesByHand,
} from "./frameworks.ts";
import { departure, gate } from "./gate.ts";
import { submitBytes } from "./http-client.ts";
import { layerThatWaits } from "./layers.ts";
import {
  leavesAndRetries,
  type Moments,
  type OrderWork,
  openShop,
  type ShopOptions,
} from "./shop.ts";
import type { Turn } from "./turn.ts";

const answers = async (turn: Turn, work: OrderWork) => {
  await work.over();
  turn.answer(201, { order: "placed" });
};

/** Starts, and does this when its client has left. */
const then =
  (how: (turn: Turn, work: OrderWork) => unknown) =>
  async (turn: Turn, work: OrderWork, { started, goOn }: Moments) => {
    started();
    await goOn;
    await how(turn, work);
  };

/** A shop whose way to Redis is a proxy, and that sees when its client has left. */
async function openBehindProxy(options: Omit<ShopOptions, "handler">) {
  const proxy = await forTest(startProxy(sharedRedisPort()));
  const left = gate();
  const shop = await openShop({
    ...options,
    handler: answers,
    redis: ioredis6.connect(proxy.port),
    outside: [layerThatWaits(async (_req, res) => void res.once("close", left.open))],
  });
  await shop.lock.check();
  return { proxy, left, shop };
}

describe.each(all)("P5: a client that leaves, on $name", (framework: Framework) => {
  test("an order whose client has left keeps the lock until it is done", async () => {
    await leavesAndRetries({ framework, handler: then(answers) });
  });

  test("a handler that throws after its client has left is reported, and ends the lock", async () => {
    if (framework.name === "Express 4, plain guard") return;
    const throws = async (_turn: Turn, work: OrderWork) => {
      await work.over();
      throw new Error("too late");
    };
    const shop = await leavesAndRetries({ framework, handler: then(throws) });
    expect(shop.errors).toEqual([new Error("too late")]);
  });

  test.runIf(writesByHand(framework))(
    "a handler that writes by hand after its client has left ends the lock with its last write",
    async () => {
      const writes = async (turn: Turn, work: OrderWork) => {
        const res = turn.byHand();
        for (let i = 0; i < 3; i++) {
          res.write("part");
          await sleep(5);
        }
        await work.over();
        res.end();
      };
      await leavesAndRetries({ framework, handler: then(writes) });
    },
  );

  test.each(["before the guard", "while its user is looked up"])(
    "a client that leaves %s starts no order",
    async (when) => {
      const leaving = departure();
      const workAt = async (place: string, req: IncomingMessage) => {
        if (place === when && !req.headers["x-rival"]) await leaving.during();
      };
      const shop = await openShop({
        framework,
        handler: answers,
        outside: [
          layerThatWaits(async (req, res) => {
            leaving.seenBy(res);
            await workAt("before the guard", req);
          }),
        ],
        guard: {
          userId: async (req) => {
            await workAt("while its user is looked up", req);
            return req.headers["x-user"];
          },
        },
      });
      await leaving.of(shop.submit());
      // Time for an order to begin that should not.
      await sleep(30);
      expect(shop.work.started).toBe(0);
      expect((await shop.rival()).status).toBe(201);
      await shop.isOverAfter(1);
    },
  );

  test.runIf(writesByHand(framework))(
    "a request that somebody answers while its user is looked up starts no order",
    async () => {
      let answer = () => {};
      const shop = await openShop({
        framework,
        handler: answers,
        outside: [
          layerThatWaits(async (_req, res) => {
            answer = () => void res.end("it took too long");
          }),
        ],
        guard: {
          userId: async (req) => {
            if (!req.headers["x-rival"]) answer();
            return req.headers["x-user"];
          },
        },
      });
      expect((await shop.submit().reply).body).toBe("it took too long");
      await sleep(20);
      expect(shop.work.started).toBe(0);
      expect((await shop.rival()).status).toBe(201);
      await shop.isOverAfter(1);
    },
  );

  test("a client that leaves while the lock is being acquired starts no order", async () => {
    const { proxy, left, shop } = await openBehindProxy({ framework });
    const held = proxy.holdRequestOnce(([name]) => name?.toLowerCase() === "eval");
    const call = shop.submit();
    await held;
    call.abort();
    await left.opened;
    proxy.releaseHeld();
    await until(() => shop.published.releases.length === 1, { what: "the lock to be given back" });
    expect(shop.work.started).toBe(0);
    expect((await shop.rival()).status).toBe(201);
    await shop.isOverAfter(2);
  });
});

describe.each([...seeing, ...newer])("$name", (framework: Framework) => {
  test("a handler that never answers a client who has left ends the lock when it is done", async () => {
    await leavesAndRetries({ framework, handler: then((_turn, work) => work.over()) });
  });

  test.runIf(writesByHand(framework))(
    "a handler that has not answered keeps the lock while its client waits",
    async () => {
      const later = gate();
      const shop = await openShop({
        framework,
        handler: async (turn, work) => {
          await work.over();
          // Returns, and somebody else answers later.
          const res = turn.byHand();
          void later.opened.then(() => res.end("later"));
        },
      });
      const call = shop.submit();
      await until(() => shop.heldAtEnd.length === 1, { what: "the work to be over" });
      // Time for a release that should not be.
      await sleep(20);
      expect(await shop.owner()).not.toBeNull();
      later.open();
      expect((await call.reply).body).toBe("later");
      await shop.isOverAfter(1);
    },
  );
});

describe.each(onHttp1)("$name", (framework: Framework) => {
  // As after the answer of a `clientError` listener: Node then emits nothing when the response ends.
  test("a response on a connection that has been ended, and whose client stays, frees the lock", async () => {
    const shop = await openShop({
      framework,
      handler: async (turn, work) => {
        turn.req.socket.end();
        await work.over();
        turn.answer(201, {});
      },
    });
    const client = connect({ port: shop.port, host: "127.0.0.1", allowHalfOpen: true });
    client.write(submitBytes(shop.user));
    client.resume();
    await shop.isOverAfter(1);
    client.destroy();
  });
});

describe.each(newest)("$name", (framework: Framework) => {
  test('a client that leaves in an outage starts no order with onUnavailable "proceed"', async () => {
    const { proxy, left, shop } = await openBehindProxy({
      framework,
      times: { acquireTimeoutMs: 2_000, commandTimeoutMs: 500 },
      guard: { onUnavailable: "proceed" },
    });
    const acquires = record("submit-lock:acquire", shop.key);
    proxy.holdRequests();
    const call = shop.submit();
    await until(() => shop.lock.stats().attempting === 1, { what: "the attempt" });
    call.abort();
    await left.opened;
    await until(() => acquires.length === 1, { what: "the end of the attempt" });
    expect(acquires).toMatchObject([{ outcome: "unavailable" }]);
    // Time for an order to begin that should not.
    await sleep(30);
    expect(shop.work.started).toBe(0);
  });
});

/** Short enough to wait for, long enough for a busy machine. */
const shortTimes = {
  ttlMs: 4_000,
  maxHoldMs: 4_400,
  acquireTimeoutMs: 2_000,
  commandTimeoutMs: 1_000,
};

describe.each(blind)("$name", (framework: Framework) => {
  test.each([
    ["never answers", () => {}],
    [
      "looks whether the response is destroyed, and returns",
      (turn: Turn) => {
        if (!turn.res.destroyed) turn.answer(201, {});
      },
    ],
  ])("an aborted order whose handler %s holds the lock for maxHoldMs", async (_what, end) => {
    const [started, told] = [gate(), gate()];
    const shop = await openShop({
      framework,
      times: shortTimes,
      handler: async (turn, work) => {
        started.open();
        const signal = turn.lease?.signal as AbortSignal;
        if (!signal.aborted) await once(signal, "abort");
        work.overNow();
        told.open();
        end(turn);
      },
    });
    const from = performance.now();
    const call = shop.submit();
    await started.opened;
    call.abort();
    const retry = shop.rival();
    await told.opened;
    expect((await retry).status).toBe(201);
    expect(performance.now() - from).toBeGreaterThan(shortTimes.maxHoldMs - shortTimes.ttlMs / 10);
    expect(shop.published.lost).toMatchObject([{ outcome: "max-hold" }]);
    expect(shop.work).toMatchObject({ started: 2, overlaps: 0 });
    await shop.keyIsGone();
  });
});
