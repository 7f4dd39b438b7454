import { hostname } from "node:os";
import { afterEach, describe, expect, test } from "vitest";
import { RedisStore, type SubmitLockOptions } from "../../src/index.ts";
import { decodeRecord } from "../../src/lock/record.ts";
import { closeClients, ioredis6 } from "../support/clients.ts";
import { freshUser } from "../support/ids.ts";
import { closeLocks, leaseOf, openLock } from "../support/locks.ts";
import { observer } from "../support/observer.ts";
import { sharedRedisPort } from "../support/redis-server.ts";
import { answer, hashesOf, recordKey, submissionOf } from "../support/submissions.ts";

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
    const hashes = hashesOf("cart 7", fingerprint);
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

  test("a cooldown: the owner id that it came from, and nothing of the submission", async () => {
    const lease = await submissionOf(lockWith(), freshUser());
    await lease.complete(answer, { cooldownMs: 30_000 });
    expect(await redis.get(lease.key)).toBe(`cooldown:${lease.ownerId}`);
    await redis.send("DEL", lease.key);
  });

  test("a record: its version, fingerprint and owner id at fixed places, then the answer", async () => {
    const lock = lockWith();
    const lease = await submissionOf(lock, freshUser(), { fingerprint: "a payload" });
    const from = Date.now();
    await lease.complete({ status: 201, headers: { etag: '"7"' }, body: "order 7" });
    const text = (await redis.get(recordKey(lease.key))) as string;
    const { fingerprint } = hashesOf("cart 7", "a payload");
    expect(text.slice(0, 59)).toBe(`1${fingerprint}${lease.ownerId}`);
    const decoded = decodeRecord(text);
    expect(decoded?.answer).toMatchObject({ status: 201, headers: { etag: '"7"' } });
    expect(Math.abs((decoded?.createdMs ?? 0) - from)).toBeLessThan(5_000);
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
