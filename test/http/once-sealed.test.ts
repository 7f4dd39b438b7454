import { randomBytes } from "node:crypto";
import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import express from "express";
import { Redis } from "ioredis";
import supertest from "supertest";
import { describe, expect, onTestFinished, test } from "vitest";
import { submitGuard } from "../../src/express/index.ts";
import { keyId } from "../../src/http/submission.ts";
import { RedisStore, type SealOptions, type SubmitLock } from "../../src/index.ts";
import { closeClients, redisClients, untilReady } from "../support/clients.ts";
import { command } from "../support/command.ts";
import { closeLocks, openLock } from "../support/locks.ts";
import { forTest, startRedis } from "../support/redis-server.ts";
import { startMonitor } from "../support/server-log.ts";

const [oldest, old, newest] = [randomBytes(32), randomBytes(32), randomBytes(32)];

function shopOn(lock: SubmitLock) {
  let runs = 0;
  const app = express();
  app.use(express.json());
  const guard = submitGuard({ lock, userId: () => "maria", idempotency: { key: "required" } });
  app.post("/orders", guard, (_req, res) => {
    runs++;
    res.location(`/orders/secret-${runs}`).status(203).json({ name: "Maria Secret", number: runs });
  });
  const order = (key: string, body: object = {}) =>
    supertest(app).post("/orders").set("Idempotency-Key", key).send(body);
  return { order, runs: () => runs };
}

/** Whatever Redis has written to its disk, and what an operator sees of the orders' commands. */
async function placed(orders: number, seal?: SealOptions): Promise<string> {
  const args = ["--appendonly", "yes", "--rdbcompression", "no", "--slowlog-log-slower-than", "0"];
  const server = await forTest(startRedis({ args: [...args, "--slowlog-max-len", "100000"] }));
  const client = new Redis(server.port, { maxRetriesPerRequest: 1 });
  await untilReady(client);
  const monitor = await startMonitor(server.port);
  const seen: string[] = [];
  monitor.on("monitor", (_time: string, words: string[]) => seen.push(words.join(" ")));
  const lock = openLock({ store: new RedisStore(client), seal });
  const shop = shopOn(lock);
  for (let number = 0; number < orders; number++) {
    expect((await shop.order(`order-${number}`, { card: "4111" })).status).toBe(203);
  }
  const repeat = await shop.order("order-7", { card: "4111" });
  expect(repeat.headers["idempotent-replayed"]).toBe("true");
  expect(repeat.body).toEqual({ name: "Maria Secret", number: 8 });
  expect(shop.runs()).toBe(orders);
  await lock.close();
  seen.push(JSON.stringify(await client.call("SLOWLOG", "GET", "-1")));
  await client.call("SAVE");
  const [, folder] = (await client.call("CONFIG", "GET", "dir")) as [string, string];
  for (const name of readdirSync(folder, { recursive: true, encoding: "utf8" })) {
    const file = join(folder, name);
    if (statSync(file).isFile()) seen.push(readFileSync(file, "latin1"));
  }
  monitor.disconnect();
  client.disconnect();
  return seen.join("\n");
}

/** Never the same record, whatever byte a seal of random bytes ends with. */
const altered = (record: Buffer) =>
  Buffer.concat([record.subarray(0, -1), Buffer.of((record.at(-1) as number) ^ 1)]);

const scope = "lock:submit:maria";
const idOf = (key: string) => keyId("maria", scope, "POST /orders", key);
/** Bodies, headers, a status, and the ids that a thief of the disk can calculate. */
const traces = ["Maria Secret", "/orders/secret-", '"s":203', idOf("order-7"), idOf("order-19")];

test("of 500 sealed orders, no byte of an answer is on the disk, in SLOWLOG or in MONITOR", async () => {
  const seen = await placed(500, { keys: [old] });
  expect(seen).toContain(`{${scope}}:`);
  for (const trace of traces) expect(seen.includes(trace), trace).toBe(false);
});

test("the same search finds each of them without a seal", async () => {
  const seen = await placed(20);
  for (const trace of traces) expect(seen.includes(trace), trace).toBe(true);
});

describe.each(redisClients)("a sealed answer, with $name", ({ connect }) => {
  /** Shops that share a Redis and differ in their keys. */
  async function openShops(...seals: (SealOptions | undefined)[]) {
    const server = await forTest(startRedis());
    const client = connect(server.port);
    await untilReady(client);
    onTestFinished(async () => {
      await closeLocks();
      closeClients();
    });
    const locks = seals.map((seal) => openLock({ store: new RedisStore(client), seal }));
    return { server, locks, shops: locks.map(shopOn) };
  }

  test("is repeated by every process with a key that opens it, and run by none", async () => {
    const { shops } = await openShops(
      { keys: [old] },
      { keys: [newest, old] },
      { keys: [newest], idKey: old },
    );
    const [first, second, third] = shops as [Shop, Shop, Shop];
    await first.order("a");
    expect((await second.order("a")).headers["idempotent-replayed"]).toBe("true");
    await second.order("b");
    expect((await third.order("b")).headers["idempotent-replayed"]).toBe("true");
    for (const [shop, key] of [
      [first, "b"],
      [third, "a"],
    ] as const) {
      const refused = await shop.order(key);
      expect(refused).toMatchObject({
        status: 409,
        body: { code: "idempotency_answer_unavailable" },
      });
    }
    expect([first.runs(), second.runs(), third.runs()]).toEqual([1, 1, 0]);
    // Known content is compared, too.
    expect((await second.order("a", { other: true })).status).toBe(422);
  });

  test.each<[of: string, began: SealOptions, idKey: SealOptions["idKey"]]>([
    ["a shop without an idKey", { keys: [old] }, old],
    ["a shop that began with ids as they were", { keys: [old], idKey: false }, false],
    ["a shop that has rotated before", { keys: [old], idKey: oldest }, oldest],
  ])(
    "is repeated by both sides of each rollout of a rotation, in %s",
    async (_of, began, idKey) => {
      const { shops } = await openShops(
        began,
        { keys: [old, newest], idKey },
        { keys: [newest, old], idKey },
        { keys: [newest], idKey },
      );
      for (const [step, before] of shops.slice(0, -1).entries()) {
        const after = shops[step + 1] as Shop;
        for (const [first, second] of [
          [before, after],
          [after, before],
        ] as const) {
          const key = `step-${step}-${first === before}`;
          const answer = await first.order(key);
          expect(await second.order(key)).toMatchObject({
            status: 203,
            body: answer.body,
            headers: { "idempotent-replayed": "true" },
          });
        }
      }
      expect(shops.map((shop) => shop.runs())).toEqual([1, 2, 2, 1]);
    },
  );

  test("is met where a shop begins to seal with ids as they were, and where it stops", async () => {
    const { shops } = await openShops(undefined, { keys: [old], idKey: false });
    const [open, sealing] = shops as [Shop, Shop];
    await open.order("a");
    expect((await sealing.order("a")).headers["idempotent-replayed"]).toBe("true");
    await sealing.order("b");
    expect((await open.order("b")).status).toBe(409);
    expect([open.runs(), sealing.runs()]).toEqual([1, 1]);
  });

  test.each([
    ["cut", 409, (record: Buffer) => record.subarray(0, -1)],
    ["altered", 409, altered],
    ["another one's", 422, undefined],
  ])(
    "that is %s is %i, is forgotten by its id, and then the order runs",
    async (_what, status, change) => {
      const { locks, server, shops } = await openShops({ keys: [old] });
      const [[shop], [lock]] = [shops as [Shop], locks as [SubmitLock]];
      await shop.order("a");
      await shop.order("b");
      const [key, other] = (await command(server.port, "keys", "{*")) as [string, string];
      const client = new Redis(server.port);
      const record = (await client.getBuffer(key)) as Buffer;
      const put = change === undefined ? await client.getBuffer(other) : change(record);
      await client.set(key, put as Buffer, "PX", 60_000);
      const replies = await Promise.all([shop.order("a"), shop.order("b")]);
      expect(replies.map(({ status }) => status).sort()).toEqual([203, status]);
      expect(shop.runs()).toBe(2);
      const id = key.slice(-22);
      const audit = { by: "anna", reason: "damaged" };
      expect(await lock.forget("maria", { id, ...audit })).toMatchObject({
        outcome: "forgotten",
        answer: { unreadable: "damaged" },
      });
      await Promise.all([shop.order("a"), shop.order("b")]);
      expect(shop.runs()).toBe(3);
      client.disconnect();
    },
  );
});

type Shop = ReturnType<typeof shopOn>;
