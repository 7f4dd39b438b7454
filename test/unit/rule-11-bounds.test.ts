import { afterEach, expect, test } from "vitest";
import { MemoryStore, RedisStore, SubmitLock, type SubmitLockOptions } from "../../src/index.ts";
import { resolveLockOptions } from "../../src/lock/options.ts";
import { closeClients, ioredis5, ioredis6 } from "../support/clients.ts";

afterEach(closeClients);

const store = new MemoryStore();
type Given = Omit<SubmitLockOptions, "store">;
const timesOf = (given: Given) => resolveLockOptions({ store, ...given }).times;
const times = (
  ttlMs: number,
  maxHoldMs: number,
  acquireTimeoutMs: number,
  commandTimeoutMs: number,
) => ({
  ttlMs,
  maxHoldMs,
  acquireTimeoutMs,
  commandTimeoutMs,
});
test.each<[string, Given, ReturnType<typeof times>]>([
  ["nothing", {}, times(10_000, 60_000, 1_000, 200)],
  ["undefined", { ttlMs: undefined, maxHoldMs: undefined }, times(10_000, 60_000, 1_000, 200)],
  ["a short TTL", { ttlMs: 100 }, times(100, 60_000, 50, 25)],
  ["a TTL of 1 s", { ttlMs: 1_000 }, times(1_000, 60_000, 500, 200)],
  ["the longest TTL", { ttlMs: 300_000 }, times(300_000, 300_000, 1_000, 200)],
  ["a short hold", { maxHoldMs: 5_000 }, times(5_000, 5_000, 1_000, 200)],
  ["the longest hold", { maxHoldMs: 600_000 }, times(10_000, 600_000, 1_000, 200)],
  ["a patient attempt", { acquireTimeoutMs: 8_000 }, times(16_000, 60_000, 8_000, 200)],
  ["the shortest attempt", { acquireTimeoutMs: 20 }, times(10_000, 60_000, 20, 10)],
  ["a patient command", { commandTimeoutMs: 4_000 }, times(16_000, 60_000, 8_000, 4_000)],
  ["the shortest command", { commandTimeoutMs: 10 }, times(10_000, 60_000, 1_000, 10)],
  ["everything", times(2_000, 3_000, 900, 300), times(2_000, 3_000, 900, 300)],
  ["no watchdog", { ttlMs: 2_000, maxHoldMs: 2_000 }, times(2_000, 2_000, 1_000, 200)],
])("rule 11: a default gives way to what was given: %s", (_name, given, resolved) => {
  expect(timesOf(given)).toEqual(resolved);
});

test.each(["lock:refund:", ":", `${"x".repeat(127)}:`, "größe/", "shop|", "lock#", "é"])(
  "the keyPrefix %j is taken",
  (prefix) => {
    expect(resolveLockOptions({ store, keyPrefix: prefix }).keyPrefix).toBe(prefix);
  },
);

/** What tells a node-redis client, of version 4 and later, from others. */
const nodeRedis = {
  isOpen: false,
  isReady: false,
  sendCommand() {},
  duplicate() {},
  on() {},
  eval() {},
};

test("a bare client is recognised, and the error says what to write", () => {
  for (const client of [
    ioredis6.connect(1, { lazyConnect: true }),
    ioredis5.connect(1, { lazyConnect: true }),
    nodeRedis,
  ]) {
    expect(() => new SubmitLock({ store: client as never })).toThrow(
      /^store: expected a LockStore .*, got a bare client: write store: new RedisStore\(redis\)$/,
    );
  }
});

/** What tells a node-redis client of version 3 from others. */
const nodeRedis3 = { connected: false, sendCommand() {}, duplicate() {}, on() {}, eval() {} };
const ioredisMock = { connected: true, duplicate() {}, on() {}, eval() {} };

const nodeRedis5 = { ...nodeRedis, destroy() {}, withTypeMapping() {} };
const cluster5 = { ...nodeRedis5, isReady: undefined, nodeClient() {}, slots: [] };
delete (cluster5 as { isReady?: unknown }).isReady;
const nodeRedis6 = { ...nodeRedis5, hImportSet() {} };
const sentinel = { ...nodeRedis6, getMasterNode() {} };
const pool = { sendCommand() {}, execute() {}, idleClients: 0, withTypeMapping() {}, on() {} };
const glide = { customCommand() {}, close() {} };
const bun = { duplicate() {}, connected: false, send() {} };

test.each([
  ["node-redis 4", nodeRedis, /got node-redis 4 or older, .*: npm install redis@6$/],
  ["node-redis 3", nodeRedis3, /got node-redis 4 or older, .*: npm install redis@6$/],
  ["node-redis 5", nodeRedis5, /got node-redis 5, 6\.0 or 6\.1\..* reply of another: npm install/],
  [
    "a Cluster of node-redis 5",
    cluster5,
    /got node-redis 5, 6\.0 or 6\.1\..*: npm install redis@6$/,
  ],
  [
    "node-redis' Sentinel",
    sentinel,
    /got node-redis' Sentinel client, .*: use ioredis with Sentinels$/,
  ],
  ["a pool of node-redis", pool, /got a pool of node-redis, .*: pass a client of createClient\(\)/],
  ["Valkey GLIDE", glide, /got a client of Valkey GLIDE, .*: use ioredis or redis@6 with Valkey$/],
  ["Bun", bun, /got Bun's client, .*: use ioredis or redis@6 on Bun$/],
  ["ioredis-mock", ioredisMock, /got ioredis-mock, which .*: use new MemoryStore\(\) in tests/],
])(
  "a RedisStore on a client of %s is refused, and the error says what to do",
  (_name, client, message) => {
    expect(() => new RedisStore(client as never)).toThrow(message);
  },
);

test.each([undefined, null, "redis://localhost", {}, () => {}])(
  "a RedisStore on %o is refused",
  (client) => {
    expect(() => new RedisStore(client as never)).toThrow(
      expect.objectContaining({
        code: "SUBMIT_LOCK_INVALID_OPTION",
        message: expect.stringMatching(
          /^redis: expected a client of ioredis \(5 or 6\) or of node-redis \(6\.2 or later\), /,
        ),
      }),
    );
  },
);

/** Never connected: nothing is listened to while there is no lock. */
const client = () => ioredis6.connect(1, { lazyConnect: true });

test.each([1, 2, 100, undefined])("ackReplicas: %j is taken", (ackReplicas) => {
  expect(() => new RedisStore(client(), { ackReplicas })).not.toThrow();
});

test("a client that writes no pipelines cannot wait for replicas", () => {
  const without = Object.assign(Object.create(client()), { pipeline: undefined });
  expect(() => new RedisStore(without)).not.toThrow();
  expect(() => new RedisStore(without, { ackReplicas: 1 })).toThrow(
    "ackReplicas: expected an ioredis client with pipeline(), got one without it",
  );
});
