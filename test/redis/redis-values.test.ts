import { randomUUID } from "node:crypto";
import { hostname } from "node:os";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { RedisStore, type SubmitLock, type SubmitLockOptions } from "../../src/index.ts";
import { decodeRecord } from "../../src/lock/record.ts";
import { asking } from "../support/asking.ts";
import { closeClients, ioredis6, untilReady } from "../support/clients.ts";
import { freshUser } from "../support/ids.ts";
import { closeLocks, commandOf, leaseOf, openLock } from "../support/locks.ts";
import { observer } from "../support/observer.ts";
import { sharedRedisPort } from "../support/redis-server.ts";
import {
  answer,
  hashesOf,
  onceOf,
  recordKey,
  recordOf,
  submissionOf,
  userOf,
} from "../support/submissions.ts";

const redis = observer();
afterEach(async () => {
  await closeLocks();
  closeClients();
});

describe("what Redis holds", () => {
  const lockWith = (options: Omit<SubmitLockOptions, "store"> = {}) =>
    openLock({ store: new RedisStore(ioredis6.connect(sharedRedisPort())), ...options });

  /** The fields of a lock's value. */
  async function fieldsOf(key: string): Promise<string[]> {
    return ((await redis.get(key)) ?? "").split(":");
  }

  test("a lock alone: owner id, token, ttlMs, maxHoldMs, holder, and two empty fields", async () => {
    const lock = lockWith({ ttlMs: 5_000, maxHoldMs: 30_000, holder: "web-3" });
    const lease = await leaseOf(lock, freshUser());
    const fields = await fieldsOf(lease.key);
    expect(fields).toEqual([
      lease.ownerId,
      `${lease.fencingToken}`,
      "5000",
      "30000",
      "web-3",
      "",
      "",
    ]);
    expect(lease.ownerId).toHaveLength(36);
    await lease.release();
  });

  test.each([
    ["its fingerprint", "a payload"],
    ["22 dashes without one", undefined],
  ])("a lock of a submission ends with its id and %s", async (_what, fingerprint) => {
    const lock = lockWith({ holder: "web-3" });
    const lease = await submissionOf(lock, freshUser(), { fingerprint });
    const hashes = hashesOf("cart 7", fingerprint, userOf(lease.key));
    if (fingerprint === undefined) expect(hashes.fingerprint).toBe("-".repeat(22));
    const end = [hashes.id, hashes.fingerprint];
    expect((await fieldsOf(lease.key)).slice(4)).toEqual(["web-3", ...end]);
    expect((await redis.get(lease.key))?.slice(-45)).toBe(end.join(":"));
    await lease.release();
  });

  test.each([
    ["host and process id by default", undefined, `${hostname().slice(0, 50)}:${process.pid}`],
    ["none", "", ""],
    ["a colon, a per cent sign, a space and other letters", "a:b%3A c/ä🛒", "a:b%3A c/ä🛒"],
  ])("the holder is percent-encoded: %s", async (_what, holder, expected) => {
    const lock = lockWith({ holder });
    const user = freshUser();
    for (const lease of [await leaseOf(lock, user), await submissionOf(lock, freshUser())]) {
      const fields = await fieldsOf(lease.key);
      expect(fields).toHaveLength(7);
      expect(fields[4]).toMatch(/^[\w\-.~@%]*$/);
      expect(decodeURIComponent(fields[4] as string)).toBe(expected);
      await lease.release();
    }
  });

  test("a record: its version, fingerprint and owner id at fixed places, then the answer", async () => {
    const lock = lockWith();
    const lease = await submissionOf(lock, freshUser(), { fingerprint: "a payload" });
    const from = Date.now();
    await lease.complete({ status: 201, headers: { etag: '"7"' }, body: "order 7" });
    const text = (await redis.get(recordKey(lease.key))) as string;
    const { fingerprint } = hashesOf("cart 7", "a payload", userOf(lease.key));
    expect(text.slice(0, 59)).toBe(`1${fingerprint}${lease.ownerId}`);
    const decoded = decodeRecord(text, { key: lease.key, submission: undefined });
    expect(decoded.answer).toMatchObject({ status: 201, headers: { etag: '"7"' } });
    expect(Math.abs(decoded.createdMs - from)).toBeLessThan(5_000);
  });

  test("no text of an id or of a payload, neither in a key nor in a value", async () => {
    const lock = lockWith();
    const user = freshUser();
    const secret = { id: "secret-id", fingerprint: "secret-payload" };
    const lease = await submissionOf(lock, user, secret);
    const seen = [await redis.get(lease.key)];
    await lease.complete(answer);
    const keys = (await redis.send("KEYS", `*${user}*`)) as string[];
    expect(keys).toEqual([recordKey(lease.key, "secret-id")]);
    seen.push(...keys, await redis.get(keys[0] as string));
    expect(seen.join()).not.toContain("secret");
  });
});

describe("what a lock finds at its key", () => {
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
    await redis.send("DEL", key);
  });

  test("P4: a foreign key with an expiry is contended, and left exactly as it was", async () => {
    await redis.send("SET", key, "another shop", "PX", 30_000);
    const attempt = await lock.acquire(user);
    expect(attempt.outcome).toBe("contended");
    const { expiresInMs } = attempt as { expiresInMs: number };
    expect(expiresInMs).toBeGreaterThan(5_000);
    expect(expiresInMs).toBeLessThanOrEqual(30_000);
    expect(await redis.get(key)).toBe("another shop");
    expect(await redis.pttl(key)).toBeLessThanOrEqual(expiresInMs + 2);
  });

  test("P4: a foreign key without any expiry is given maxHoldMs, and keeps its value", async () => {
    await redis.send("SET", key, "an old lock");
    expect(await lock.acquire(user)).toMatchObject({ outcome: "contended", expiresInMs: 60_000 });
    expect(await redis.get(key)).toBe("an old lock");
    const left = await redis.pttl(key);
    expect(left).toBeGreaterThan(5_000);
    expect(left).toBeLessThanOrEqual(60_000 + 2);
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
    ["a bare UUID", ""],
    ["a UUID with other text behind it", " of another library"],
  ])("P4: %s is another library's lock, and no command touches it", async (_what, rest) => {
    const store = new RedisStore(await untilReady(ioredis6.connect(sharedRedisPort())));
    const ask = asking(store);
    await redis.send("SET", key, randomUUID() + rest, "PX", 60_000);
    const seen = async () => [await redis.get(key), await redis.send("PEXPIRETIME", key)];
    const was = await seen();
    for (const command of [commandOf({ key }), onceOf({ key })]) {
      const reply = await ask.acquire(command).reply;
      expect(reply).toMatchObject({ kind: "contended" });
      expect(reply).not.toMatchObject({ sameSubmission: true });
      expect(await ask.extend(command).reply).toMatchObject({ kind: "foreign" });
      for (const cooldownUntilMs of [0, Date.now() + 60_000]) {
        const released = await ask.release(command, cooldownUntilMs).reply;
        expect(released).toMatchObject({ kind: "foreign" });
      }
    }
    const plan = { record: recordOf(onceOf()), expiresAtMs: Date.now() + 5_000 };
    expect(await ask.complete(onceOf({ key }), plan).reply).toMatchObject({ kind: "late" });
    expect(await seen()).toEqual(was);
  });

  test.each([
    ["empty string", ["SET", ""]],
    ["list", ["RPUSH", "a", "b"]],
    ["stream", ["XADD", "1-1", "field", "value"]],
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
});
