import { once } from "node:events";
import { afterEach, beforeEach, expect, test } from "vitest";
import { type LockCommand, RedisStore } from "../../src/index.ts";
import { type Asking, asking } from "../support/asking.ts";
import { type AnyRedis, closeClients, ioredis6 } from "../support/clients.ts";
import { freshUser } from "../support/ids.ts";
import { closeLocks, commandOf, leaseOf, openLock } from "../support/locks.ts";
import { observer } from "../support/observer.ts";
import { type RedisProxy, startProxy } from "../support/proxy.ts";
import { sharedRedisPort } from "../support/redis-server.ts";
import { onceOf, recordOf } from "../support/submissions.ts";
import { until } from "../support/until.ts";

let proxy: RedisProxy;
let client: AnyRedis;
let store: RedisStore;
let asked: Asking;
beforeEach(async () => {
  proxy = await startProxy(sharedRedisPort());
  client = ioredis6.connect(proxy.port);
  await once(client, "ready");
  store = new RedisStore(client);
  asked = asking(store);
  warmedUp = 0;
  // Rule 24: a call is shared once the connection was asked.
  const isShared = async () => {
    await Promise.all(many(2).map((command) => asked.acquire(command).reply));
    return keysOfCalls().at(-1) === 2;
  };
  await until(isShared, { what: "calls to be shared" });
  warmedUp = proxy.commands.length;
});
afterEach(async () => {
  await closeLocks();
  closeClients();
  await proxy.stop();
});

let warmedUp = 0;
/** How many keys each call had. */
const keysOfCalls = () =>
  proxy.commands
    .slice(warmedUp)
    .filter(([name]) => name === "eval")
    .map(([, , keys]) => Number(keys));
const many = (count: number) => Array.from({ length: count }, () => commandOf());

test("the acquires of one turn travel in a few calls, so that Redis and this process work at once", async () => {
  const replies = await Promise.all(many(40).map((command) => asked.acquire(command).reply));
  expect(replies.every(({ kind }) => kind === "taken")).toBe(true);
  expect(keysOfCalls()).toEqual([10, 10, 10, 10]);
});

test("while calls are under way, what comes in one turn shares one", async () => {
  proxy.holdReplies();
  const first = many(40).map((command) => asked.acquire(command).reply);
  await until(() => keysOfCalls().length === 4, { what: "the first turn to be written" });
  const second = many(40).map((command) => asked.acquire(command).reply);
  await until(() => keysOfCalls().length === 5, { what: "the second turn to be written" });
  proxy.releaseHeld();
  await Promise.all([...first, ...second]);
  expect(keysOfCalls().at(-1)).toBe(40);
});

test("no call has more than 100 keys", async () => {
  const replies = await Promise.all(many(450).map((command) => asked.acquire(command).reply));
  expect(replies.every(({ kind }) => kind === "taken")).toBe(true);
  expect(keysOfCalls()).toEqual([100, 100, 100, 100, 50]);
});

test("no call has more than 16 submissions, so that nobody waits behind a hundred answers", async () => {
  const orders = Array.from({ length: 100 }, () => onceOf());
  await Promise.all(orders.map((order) => asked.acquire(order).reply));
  const expiresAtMs = Date.now() + 60_000;
  const plan = (order: LockCommand) => ({
    record: recordOf(order, "x".repeat(65_536)),
    expiresAtMs,
  });
  const completed = orders.map((order) => asked.complete(order, plan(order)).reply);
  for (const reply of await Promise.all(completed)) expect(reply.kind).toBe("recorded");
  const before = keysOfCalls().length;
  const replays = orders.map(({ key, submission }) =>
    asked.acquire(commandOf({ key, submission })),
  );
  const other = asked.acquire(commandOf());
  const replies = await Promise.all(replays.map(({ reply }) => reply));
  expect(new Set(replies.map(({ kind }) => kind))).toEqual(new Set(["completed"]));
  expect(await other.reply).toMatchObject({ kind: "taken" });
  // Two keys a submission.
  expect(Math.max(...keysOfCalls())).toBeLessThanOrEqual(32);
  // A lock alone has a call of its own, and goes out first.
  expect(keysOfCalls().slice(before)).toEqual([1, 32, 32, 32, 32, 32, 32, 8]);
});

test("of one turn, releases go out first, then extends, then acquires", async () => {
  const [held, kept] = [commandOf(), commandOf()];
  await Promise.all([asked.acquire(held).reply, asked.acquire(kept).reply]);
  const before = proxy.commands.length;
  const next = commandOf({ key: held.key });
  const replies = [asked.acquire(next), asked.extend(kept), asked.release(held)];
  const kinds = (await Promise.all(replies.map(({ reply }) => reply))).map(({ kind }) => kind);
  expect(kinds).toEqual(["taken", "done", "done"]);
  const order = proxy.commands.slice(before).map((argv) => argv.slice(4).join(" "));
  expect(order[0]).toContain(held.ownerId);
  expect(order[1]).toContain(kept.ownerId);
  expect(order[2]).toContain(next.ownerId);
});

test("locks of different times share a store, and each key gets the life of its own lock", async () => {
  const redis = observer();
  const short = openLock({ store, ttlMs: 1_000, keyPrefix: "lock:short:" });
  const long = openLock({ store, ttlMs: 200_000, keyPrefix: "lock:long:" });
  const user = freshUser();
  const leases = await Promise.all([leaseOf(short, user), leaseOf(long, user)]);
  expect(await redis.pttl(`lock:short:${user}`)).toBeLessThanOrEqual(1_000 + 2);
  expect(await redis.pttl(`lock:long:${user}`)).toBeGreaterThan(100_000);
  await Promise.all(leases.map((lease) => lease.release()));
});

test("the scripts travel without comments and indentation", async () => {
  await asked.acquire(commandOf()).reply;
  const script = proxy.commands.slice(warmedUp).find(([name]) => name === "eval")?.[1];
  expect(script).not.toContain("--");
  expect(script).toMatch(/^local time = redis\.call\('TIME'\)\n\S/);
  expect(script).not.toMatch(/^\s|\n\s/);
});
