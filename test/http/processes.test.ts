import { randomUUID } from "node:crypto";
import { afterAll, afterEach, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { Child } from "../support/child.ts";
import { closeClients, ioredis6 } from "../support/clients.ts";
import { compiled } from "../support/compiled.ts";
import { freshUser } from "../support/ids.ts";
import { observer } from "../support/observer.ts";
import { sharedRedisPort } from "../support/redis-server.ts";
import { until } from "../support/until.ts";
import { Crowd } from "./crowd.ts";
import { newest } from "./frameworks.ts";
import { type HttpClient, openClient, type Reply, submitBytes } from "./http-client.ts";
import { codeOf, unmarked } from "./once-shop.ts";
import type { FromShop, ToShop } from "./shop-process.ts";

/** A server process, seen from outside. */
interface ShopProcess {
  readonly port: number;
  /** Every order whose handler has begun, and how many of its user's were running then. */
  readonly started: Extract<FromShop, { started: string }>[];
  finish(order: string): void;
  /** How many repeats wait. */
  waiting(): Promise<number>;
  /** SIGKILL. */
  stop(): Promise<void>;
}

const file = new URL("./shop-process.ts", import.meta.url);

async function startShopProcess(
  framework: string,
  redisPort: number,
  ttlMs?: number,
): Promise<ShopProcess> {
  const args = [framework, `${redisPort}`, ...(ttlMs === undefined ? [] : [`${ttlMs}`])];
  const child = new Child<FromShop, ToShop>(await compiled({ file }), args);
  const started: ShopProcess["started"] = [];
  child.onMessage((message) => {
    if ("started" in message) started.push(message);
  });
  const { port } = (await child.next()) as { port: number };
  return {
    port,
    started,
    finish: (order) => child.send({ finish: order }),
    async waiting() {
      const said = child.next(60_000, (message) => "waiting" in message);
      child.send({ asks: "waiting" });
      return ((await said) as { waiting: number }).waiting;
    },
    stop: () => child.kill(),
  };
}

const names = newest.map(({ name }) => name);
/** Each framework once first and once second. */
const pairs = names.map((first, i) => ({
  first,
  second: names[(i + 1) % names.length] as string,
}));

/** One shop on each framework. To start a process costs as much as a hundred orders. */
const shops = new Map<string, ShopProcess>();
beforeAll(async () => {
  await Promise.all(
    newest.map(async ({ name }) => {
      shops.set(name, await startShopProcess(name, sharedRedisPort()));
    }),
  );
});
afterAll(async () => {
  await Promise.all([...shops.values()].map((shop) => shop.stop()));
  closeClients();
});

function shopOn(name: string): ShopProcess {
  const shop = shops.get(name);
  if (shop === undefined) throw new Error(`There is no shop on ${name}.`);
  return shop;
}

describe("two processes", () => {
  /** How often the crowd submits, or as often as the machine can within a minute. 1 000 in the workflow. */
  const rounds = Number(process.env["CROWD_ROUNDS"] ?? 30);
  const roundsMs = process.env["CROWD_ROUNDS"] ? Number.POSITIVE_INFINITY : 60_000;

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
    });
  });
});

describe("once processes", () => {
  const clients: HttpClient[] = [];
  afterEach(() => {
    for (const client of clients.splice(0)) client.close();
  });

  function submit({ port }: ShopProcess, headers: Record<string, string>): Promise<Reply> {
    const client = openClient(1, port);
    clients.push(client);
    return client.call({ headers }).reply;
  }

  const runsOf = ({ started }: ShopProcess, order: string) =>
    started.filter((each) => each.started === order).length;

  describe.each(pairs)("$first and $second", ({ first, second }) => {
    test("P9, rule 25: a click that waits elsewhere is told a declined card, and a later one runs", async () => {
      const [one, other, order] = [shopOn(first), shopOn(second), freshUser()];
      const headers = { "x-user": order, "x-order": order, "idempotency-key": randomUUID() };
      const click = submit(one, { ...headers, "x-answer": "402" });
      await until(() => runsOf(one, order) === 1, { what: "the order to start" });
      const waiting = submit(other, headers);
      await until(async () => (await other.waiting()) === 1, { what: "the other click to wait" });
      one.finish(order);
      const [{ body, status }, told] = await Promise.all([click, waiting]);
      expect([status, told.status, told.body]).toEqual([402, 402, body]);
      expect(told.headers["idempotent-replayed"]).toBe("true");
      expect((await submit(other, { ...headers, "x-work-ms": "0" })).status).toBe(201);
      expect([runsOf(one, order), runsOf(other, order)]).toEqual([1, 1]);
    });

    test("an order whose client has left is repeated by the other process", async () => {
      const [one, other, order] = [shopOn(first), shopOn(second), freshUser()];
      const headers = { "x-user": order, "x-order": order, "idempotency-key": randomUUID() };
      const call = openClient(1, one.port).call({ headers });
      await until(() => runsOf(one, order) === 1, { what: "the order to start" });
      call.abort();
      const repeat = submit(other, headers);
      await until(async () => (await other.waiting()) === 1, { what: "the repeat to wait" });
      one.finish(order);
      const replies = [await repeat];
      const isRepeated = async () => {
        if (replies.at(-1)?.status !== 201) replies.push(await submit(other, headers));
        return replies.at(-1)?.status === 201;
      };
      await until(isRepeated, { what: "the order to be repeated" });
      expect(replies.at(-1)?.headers["idempotent-replayed"]).toBe("true");
      const waiting = replies.slice(0, -1);
      expect(waiting.map(codeOf)).toEqual(waiting.map(() => "idempotency_in_flight"));
      expect([runsOf(one, order), runsOf(other, order)]).toEqual([1, 0]);
    });
  });

  test("a submission whose process was killed runs again as soon as its lease has run out", async () => {
    const ttlMs = 2_000;
    const started = names
      .slice(0, 2)
      .map((name) => startShopProcess(name, sharedRedisPort(), ttlMs));
    const [one, other] = (await Promise.all(started)) as [ShopProcess, ShopProcess];
    onTestFinished(() => other.stop());
    const headers = { "x-user": freshUser(), "x-order": "7", "idempotency-key": randomUUID() };
    submit(one, headers).catch(() => {});
    await until(() => one.started.length === 1, { what: "the order to start" });
    await one.stop();
    const killedAt = performance.now();
    const waiting: unknown[] = [];
    const retry = async () => {
      const reply = await submit(other, { ...headers, "x-work-ms": "0" });
      if (reply.status !== 201) waiting.push(codeOf(reply));
      return reply.status === 201 && reply;
    };
    const answered = await until(retry, { what: "the retry to run", everyMs: 20 });
    // A busy machine may come late, by far less than a day.
    expect(performance.now() - killedAt).toBeLessThan(ttlMs + 5_000);
    expect(new Set(waiting)).toEqual(new Set(["idempotency_in_flight"]));
    expect(answered.headers["idempotent-replayed"]).toBeUndefined();
    // And that was the last time.
    const key = `lock:submit:${headers["x-user"]}`;
    await until(async () => !(await observer().exists(key)), { what: "the lock to be free" });
    expect(unmarked(await submit(other, headers))).toEqual(unmarked(answered));
    expect(other.started).toHaveLength(1);
  });

  test("one key on many connections to two processes at once runs once", async () => {
    const processes = [shopOn("Express 5, guard.protect(handler)"), shopOn("Koa 3")];
    const ports = processes.map(({ port }) => port);
    const crowd = await Crowd.open(ports, 20);
    const user = freshUser();
    const rounds = 20;
    for (let round = 0; round < rounds; round++) {
      const statuses: number[] = [];
      const headers = {
        "X-Order": `${user}-${round}`,
        "X-Work-Ms": "5",
        "Idempotency-Key": `${user}-${round}`,
      };
      crowd.submit(submitBytes(user, headers), (status) => statuses.push(status));
      await until(() => statuses.length === crowd.size, { what: "all answers", everyMs: 1 });
      // Of those that are not at work, the late are repeated its answer.
      expect(new Set(statuses).size).toBeLessThanOrEqual(2);
      expect(statuses.filter((status) => status !== 201 && status !== 409)).toEqual([]);
      const locked = () => observer().exists(`lock:submit:${user}`);
      await until(async () => !(await locked()), { what: "the lock to be free", everyMs: 1 });
    }
    crowd.close();
    const all = processes.flatMap(({ started }) => started);
    const started = all.filter((each) => each.started.startsWith(user));
    expect(started.map((each) => each.started).sort()).toEqual(
      Array.from({ length: rounds }, (_, round) => `${user}-${round}`).sort(),
    );
    expect(started.filter(({ running }) => running !== 1)).toEqual([]);
  });
});
