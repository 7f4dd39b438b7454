import { afterEach, beforeEach, expect, test } from "vitest";
import { RedisStore, type SubmitLock } from "../../src/index.ts";
import { closeClients, ioredis6 } from "../support/clients.ts";
import { freshUser } from "../support/ids.ts";
import { closeLocks, leaseOf, openLock } from "../support/locks.ts";
import { observer } from "../support/observer.ts";
import { sharedRedisPort } from "../support/redis-server.ts";

const redis = observer();
let lock: SubmitLock;
let user: string;
let key: string;

beforeEach(async () => {
  const store = new RedisStore(ioredis6.connect(sharedRedisPort()));
  lock = openLock({ store, ttlMs: 5_000, maxHoldMs: 60_000 });
  user = freshUser();
  key = `lock:submit:${user}`;
  await lock.check();
});
afterEach(async () => {
  await closeLocks();
  closeClients();
  await redis.send("DEL", key);
});

test("the key holds the owner id, a UUID, and never lives without an expiry", async () => {
  const lease = await leaseOf(lock, user);
  expect(lease.ownerId).toMatch(
    /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/,
  );
  expect(await redis.ownerOf(key)).toBe(lease.ownerId);
  const left = await redis.pttl(key);
  expect(left).toBeGreaterThan(0);
  expect(left).toBeLessThanOrEqual(5_000);
  await lease.release();
  expect(await redis.exists(key)).toBe(false);
});

test("P4: a foreign key with an expiry is contended, and left exactly as it was", async () => {
  await redis.send("SET", key, "another shop", "PX", 30_000);
  const attempt = await lock.acquire(user);
  expect(attempt.outcome).toBe("contended");
  const { expiresInMs } = attempt as { expiresInMs: number };
  expect(expiresInMs).toBeGreaterThan(5_000);
  expect(expiresInMs).toBeLessThanOrEqual(30_000);
  expect(await redis.get(key)).toBe("another shop");
  expect(await redis.pttl(key)).toBeLessThanOrEqual(expiresInMs);
});

test("P4: a foreign key without any expiry is given maxHoldMs, and keeps its value", async () => {
  await redis.send("SET", key, "an old lock");
  expect(await lock.acquire(user)).toMatchObject({ outcome: "contended", expiresInMs: 60_000 });
  expect(await redis.get(key)).toBe("an old lock");
  const left = await redis.pttl(key);
  expect(left).toBeGreaterThan(5_000);
  expect(left).toBeLessThanOrEqual(60_000);
  // It is not given another life.
  await lock.acquire(user);
  expect(await redis.pttl(key)).toBeLessThanOrEqual(left);
});

test("a foreign key without any expiry is not touched by a release", async () => {
  const lease = await leaseOf(lock, user);
  await redis.send("SET", key, "an old lock");
  expect(await lease.release()).toBe("foreign");
  expect(await redis.get(key)).toBe("an old lock");
  expect(await redis.pttl(key)).toBe(-1);
});

test.each([
  ["empty string", ["SET", ""]],
  ["list", ["RPUSH", "a", "b"]],
  ["hash", ["HSET", "field", "value"]],
  ["set", ["SADD", "a", "b"]],
  ["sorted set", ["ZADD", 1, "a"]],
  ["stream", ["XADD", "1-1", "field", "value"]],
  ["HyperLogLog, which is a string,", ["PFADD", "a"]],
] as [string, [string, ...(string | number)[]]][])(
  "a %s at the key is contended, and left exactly as it was",
  async (_type, [name, ...args]) => {
    await redis.send(name, key, ...args);
    await redis.send("PEXPIRE", key, 100_000);
    const before = await redis.dump(key);
    expect((await lock.acquire(user)).outcome).toBe("contended");
    expect(await redis.dump(key)).toEqual(before);
    expect(await redis.pttl(key)).toBeGreaterThan(90_000);
  },
);

test("a key that is no lock has no known end, and is not given one", async () => {
  await redis.send("RPUSH", key, "a");
  expect(await lock.acquire(user)).toMatchObject({
    outcome: "contended",
    expiresInMs: Number.POSITIVE_INFINITY,
  });
  expect(await redis.pttl(key)).toBe(-1);
});

test("a lease whose key became a list is lost, and its release leaves the list alone", async () => {
  const lease = await leaseOf(lock, user);
  await redis.send("DEL", key);
  await redis.send("RPUSH", key, "a");
  expect(await lease.release()).toBe("foreign");
  expect(await redis.send("LRANGE", key, 0, -1)).toEqual(["a"]);
});

test("one unusable key of a gathered call does not fail its neighbours", async () => {
  const neighbours = [freshUser(), freshUser()];
  await redis.send("RPUSH", key, "a");
  const users = [neighbours[0], user, neighbours[1]] as string[];
  const attempts = await Promise.all(users.map((one) => lock.acquire(one)));
  expect(attempts.map(({ outcome }) => outcome)).toEqual(["acquired", "contended", "acquired"]);
});

test("a check leaves nothing behind", async () => {
  const keyPrefix = `lock:${freshUser()}:`;
  const store = new RedisStore(ioredis6.connect(sharedRedisPort()));
  await openLock({ store, keyPrefix }).check();
  expect(await redis.send("KEYS", `${keyPrefix}*`)).toEqual([]);
});
