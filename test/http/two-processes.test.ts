import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { closeClients, ioredis6 } from "../support/clients.ts";
import { freshUser } from "../support/ids.ts";
import { sharedRedisPort } from "../support/redis-server.ts";
import { until } from "../support/until.ts";
import { Crowd } from "./crowd.ts";
import { newest } from "./frameworks.ts";
import { openClient, submitBytes } from "./http-client.ts";
import { type ShopProcess, startShopProcess } from "./shop-processes.ts";

/** How often the crowd submits, or as often as the machine can within a minute. 1 000 in the workflow. */
const rounds = Number(process.env["CROWD_ROUNDS"] ?? 200);
const roundsMs = process.env["CROWD_ROUNDS"] ? Number.POSITIVE_INFINITY : 60_000;

const shops = new Map<string, ShopProcess>();
beforeAll(async () => {
  await Promise.all(
    newest.map(async ({ name }) => {
      shops.set(name, await startShopProcess(name, sharedRedisPort()));
    }),
  );
}, 120_000);
afterAll(async () => {
  await Promise.all([...shops.values()].map((shop) => shop.stop()));
  closeClients();
});

function shopOn(name: string): ShopProcess {
  const shop = shops.get(name);
  if (shop === undefined) throw new Error(`There is no shop on ${name}.`);
  return shop;
}

const names = newest.map(({ name }) => name);
/** Each framework once first and once second. */
const pairs = names.map((first, i) => ({ first, second: names[(i + 1) % names.length] as string }));

test.each(pairs)(
  "a client that leaves $first and retries on $second waits for the first order",
  async ({ first, second }) => {
    const [one, other, user] = [shopOn(first), shopOn(second), freshUser()];
    const headers = (order: string) => ({ "x-user": user, "x-order": order });
    const clients = [openClient(1, one.port), openClient(1, other.port)] as const;
    const firstOrder = `first-${user}`;
    const call = clients[0].call({ headers: headers(firstOrder) });
    await until(() => one.started.some(({ started }) => started === firstOrder), {
      what: "the first order to start",
    });
    call.abort();

    const retryOrder = `retry-${user}`;
    other.finish(retryOrder);
    const statuses: number[] = [];
    const retry = async () => {
      const { status } = await clients[1].call({ headers: headers(retryOrder) }).reply;
      statuses.push(status);
      return status;
    };
    for (let i = 0; i < 20; i++) await retry();
    expect(new Set(statuses)).toEqual(new Set([409]));
    one.finish(firstOrder);
    await until(async () => (await retry()) === 201, { what: "the retry to go through" });

    const orders = [...one.started, ...other.started].filter(({ started }) =>
      started.includes(user),
    );
    expect(orders).toEqual([
      { started: firstOrder, running: 1 },
      { started: retryOrder, running: 1 },
    ]);
    for (const client of clients) client.close();
  },
);

describe("P1: 200 simultaneous submits of one user over two processes", () => {
  const [first, second] = ["Express 5, guard.protect(handler)", "Koa 3"];

  test("start exactly one handler, round after round", async () => {
    const processes = [shopOn(first), shopOn(second)];
    const ports = processes.map(({ port }) => port);
    const crowd = await Crowd.open(ports, 100);
    const redis = ioredis6.connect(sharedRedisPort());
    const user = freshUser();
    const handlersBefore = processes.flatMap(({ started }) => started).length;
    const endsAt = performance.now() + roundsMs;
    let round = 0;
    while (round < rounds && performance.now() < endsAt) {
      round++;
      const order = `round-${round}-${user}`;
      const statuses: number[] = [];
      crowd.submit(submitBytes(user, { "X-Order": order }), (status) => statuses.push(status));
      const all = (count: number) =>
        until(() => statuses.length >= count, {
          what: `${count} answers in round ${round}`,
          boundMs: 30_000,
          everyMs: 0,
        });
      await all(199);
      // Whoever got through has waited for all the others.
      expect(statuses.filter((status) => status === 409)).toHaveLength(199);
      for (const shop of processes) shop.finish(order);
      await all(200);
      expect(statuses.at(-1)).toBe(201);
      await until(async () => (await redis.exists(`lock:submit:${user}`)) === 0, {
        what: `no key to be left in round ${round}`,
        everyMs: 0,
      });
    }
    crowd.close();
    const handlers = processes.flatMap(({ started }) => started).slice(handlersBefore);
    expect(handlers).toHaveLength(round);
    expect(handlers.filter(({ running }) => running !== 1)).toEqual([]);
  }, 180_000);
});
