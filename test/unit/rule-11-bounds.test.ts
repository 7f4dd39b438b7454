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
/** The message of the error that these options throw. */
function refusal(options: object): string {
  try {
    new SubmitLock({ store, ...options });
  } catch (error) {
    expect(error).toMatchObject({ code: "SUBMIT_LOCK_INVALID_OPTION", name: "InvalidOptionError" });
    return (error as Error).message;
  }
  throw new Error(`${JSON.stringify(options)} was accepted`);
}

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

test.each<[keyof Given, object, string, string]>([
  ["ttlMs", { ttlMs: 99 }, "from 100 to 300000", "99"],
  ["ttlMs", { ttlMs: 300_001 }, "from 100 to 300000", "300001"],
  ["ttlMs", { ttlMs: 1_000.5 }, "a whole number", "1000.5"],
  ["ttlMs", { ttlMs: "10s" }, "a whole number", '"10s"'],
  ["ttlMs", { ttlMs: Number.NaN }, "a whole number", "NaN"],
  ["ttlMs", { ttlMs: Number.POSITIVE_INFINITY }, "a whole number", "Infinity"],
  ["ttlMs", { ttlMs: null }, "a whole number", "null"],
  ["maxHoldMs", { ttlMs: 10_000, maxHoldMs: 9_999 }, "from 10000 to 600000", "9999"],
  ["maxHoldMs", { maxHoldMs: 600_001 }, "to 600000", "600001"],
  ["acquireTimeoutMs", { acquireTimeoutMs: 19 }, "from 20", "19"],
  ["acquireTimeoutMs", { ttlMs: 1_000, acquireTimeoutMs: 501 }, "from 20 to 500", "501"],
  ["acquireTimeoutMs", { acquireTimeoutMs: 150_001 }, "to 150000", "150001"],
  ["commandTimeoutMs", { commandTimeoutMs: 9 }, "from 10", "9"],
  ["commandTimeoutMs", { ttlMs: 1_000, commandTimeoutMs: 251 }, "from 10 to 250", "251"],
  ["commandTimeoutMs", { acquireTimeoutMs: 100, commandTimeoutMs: 51 }, "to 50", "51"],
  ["commandTimeoutMs", { commandTimeoutMs: -1 }, "from 10", "-1"],
  // A default that is derived from what was given is not to be blamed for it.
  ["maxHoldMs", { maxHoldMs: 50 }, "from 100", "50"],
  ["maxHoldMs", { maxHoldMs: "x" }, "a whole number", '"x"'],
  ["maxHoldMs", { maxHoldMs: 5_000.5 }, "a whole number", "5000.5"],
  ["acquireTimeoutMs", { acquireTimeoutMs: Number.NaN }, "a whole number", "NaN"],
  ["commandTimeoutMs", { commandTimeoutMs: 3_000.1 }, "a whole number", "3000.1"],
  // Only `undefined` means absent.
  ["maxHoldMs", { maxHoldMs: null }, "a whole number", "null"],
  ["acquireTimeoutMs", { acquireTimeoutMs: null }, "a whole number", "null"],
  ["commandTimeoutMs", { commandTimeoutMs: null }, "a whole number", "null"],
])("rule 11: %s out of bounds is refused: %o", (name, options, expected, came) => {
  const message = refusal(options);
  expect(message).toMatch(new RegExp(`^${name}: expected `));
  expect(message).toContain(expected);
  expect(message).toContain(`got ${came}`);
});

test.each([
  ["empty", ""],
  ["with a space", "lock: "],
  ["with a line end", "lock:\n"],
  ["with an opening brace", "lock:{a"],
  ["with a closing brace", "lock:a}"],
  ["with a NUL", "lock:\u0000"],
  ["with DEL", "lock:\u007f"],
  ["with a zero-width space", "lock:\u200b"],
  ["with a byte order mark", "\ufefflock:"],
  ["with a lone surrogate", "lock:\ud800"],
  ["of 129 characters", "x".repeat(129)],
  ["that is a number", 1],
])("a keyPrefix %s is refused", (_name, keyPrefix) => {
  expect(refusal({ keyPrefix })).toMatch(/^keyPrefix: expected 1 to 128 characters/);
});

test("a long value that was refused does not fill the log", () => {
  expect(refusal({ keyPrefix: "x".repeat(10_000) }).length).toBeLessThan(200);
});

test.each(["lock:refund:", "x", "x".repeat(128), "größe/"])(
  "the keyPrefix %j is taken",
  (prefix) => {
    expect(resolveLockOptions({ store, keyPrefix: prefix }).keyPrefix).toBe(prefix);
  },
);

test("an unknown option is refused by its name, with the known ones", () => {
  const message = refusal({ ttl: 10_000 });
  expect(message).toContain('unknown option "ttl"');
  for (const name of [
    "store",
    "ttlMs",
    "maxHoldMs",
    "acquireTimeoutMs",
    "commandTimeoutMs",
    "keyPrefix",
  ]) {
    expect(message).toContain(name);
  }
});

test.each([undefined, null, 42, "options", []])("options that are %j are refused", (options) => {
  expect(() => new SubmitLock(options as never)).toThrow(/SubmitLock options: expected an object/);
});

test.each([
  ["nothing", undefined, "undefined"],
  ["null", null, "null"],
  ["a URL", "redis://localhost", '"redis://localhost"'],
  ["an object of another kind", { get: () => {} }, "an object"],
  ["a function", () => {}, "a function"],
  ["a store without extend", { acquire: 1, release: 1, attach: 1 }, "an object"],
])("a store that is %s is refused", (_name, notAStore, came) => {
  const message = refusal({ store: notAStore });
  expect(message).toBe(
    `store: expected a LockStore such as new RedisStore(redis) or new MemoryStore(), got ${came}`,
  );
});

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
    expect(refusal({ store: client })).toMatch(
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

test.each([
  ["waitMs", { waitMs: -1 }],
  ["waitMs", { waitMs: 600_001 }],
  ["waitMs", { waitMs: 1.5 }],
  ["waitMs", { waitMs: "1s" }],
  ["withLock options", { wait: 5 }],
  ["withLock options", undefined],
])("withLock refuses a wrong %s, before it tries", async (name, options) => {
  const lock = new SubmitLock({ store });
  let ran = false;
  const work = lock.withLock("42", options as never, () => {
    ran = true;
  });
  await expect(work).rejects.toMatchObject({
    code: "SUBMIT_LOCK_INVALID_OPTION",
    message: expect.stringContaining(name),
  });
  expect(ran).toBe(false);
});

/** Never connected: nothing is listened to while there is no lock. */
const client = () => ioredis6.connect(1, { lazyConnect: true });

test.each([0, -1, 1.5, 101, Number.NaN, "1", null, true])(
  "ackReplicas: %j is no number of replicas",
  (ackReplicas) => {
    const make = () => new RedisStore(client(), { ackReplicas: ackReplicas as number });
    expect(make).toThrow(/^ackReplicas: expected a whole number from 1 to 100, got /);
  },
);

test.each([1, 2, 100, undefined])("ackReplicas: %j is taken", (ackReplicas) => {
  expect(() => new RedisStore(client(), { ackReplicas })).not.toThrow();
});

test("an option that is none is refused", () => {
  expect(() => new RedisStore(client(), { ackReplica: 1 } as never)).toThrow(
    'RedisStore options: expected only ackReplicas, got the unknown option "ackReplica"',
  );
  expect(() => new RedisStore(client(), 1 as never)).toThrow(/expected an object, got 1$/);
});

test("a client that writes no pipelines cannot wait for replicas", () => {
  const without = Object.assign(Object.create(client()), { pipeline: undefined });
  expect(() => new RedisStore(without)).not.toThrow();
  expect(() => new RedisStore(without, { ackReplicas: 1 })).toThrow(
    "ackReplicas: expected an ioredis client with pipeline(), got one without it",
  );
});
