import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, describe, expect, test } from "vitest";
import type { Lease, SubmissionAttempt } from "../../src/index.ts";
import { record } from "../support/channels.ts";
import { redisClients } from "../support/clients.ts";
import { freshUser } from "../support/ids.ts";
import { acquired, leaseOf } from "../support/locks.ts";
import { forTest, startRedis } from "../support/redis-server.ts";
import { answer, foundBy, submit } from "../support/submissions.ts";
import { until } from "../support/until.ts";
import {
  closeFixtures,
  type Fixture,
  isAcquire,
  isComplete,
  isRelease,
  openFixture,
  openHeld,
  openOrder,
  openWithHeldCopy,
  patient,
} from "./fixture.ts";

afterEach(closeFixtures);

const why = { by: "anna@ops-1", reason: "ticket 4711" };
const idOf = ({ ownerId }: Lease) => ownerId.slice(0, 8);

function freed({ lock }: Fixture, user: string, lease: Lease) {
  return lock.free(user, { id: idOf(lease), ...why });
}

describe.each(redisClients)("rule 19: a lease that was freed, with $name", ({ connect }) => {
  test("leaves a tombstone that names it, with the very expiry that it had", async () => {
    const fixture = await openFixture({ connect, ttlMs: 30_000 });
    const user = freshUser();
    const lease = await leaseOf(fixture.lock, user);
    const before = await fixture.redis.send("PEXPIRETIME", lease.key);
    await freed(fixture, user, lease);
    const [kind, ownerId, by, us, reason] = (await fixture.redis.get(lease.key))?.split(":") ?? [];
    expect([kind, ownerId, by, reason]).toEqual([
      "freed",
      lease.ownerId,
      "anna@ops-1",
      "ticket%204711",
    ]);
    expect(Math.abs(Number(us) / 1_000 - Date.now())).toBeLessThan(60_000);
    expect(await fixture.redis.send("PEXPIRETIME", lease.key)).toBe(before);
  });

  test("keeps its very expiry, also where a millisecond ends in the middle of the script", async () => {
    const { lock, redis } = await openFixture({ connect, ...patient });
    const ownerId = randomUUID();
    const id = ownerId.slice(0, 8);
    const moved: unknown[] = [];
    const round = async () => {
      const user = freshUser();
      const key = lock.keyFor(user);
      await redis.send("SET", key, ownerId, "PX", 60_000);
      const before = await redis.send("PEXPIRETIME", key);
      await lock.free(user, { id, by: "anna@ops-1", reason: "a test" });
      const after = await redis.send("PEXPIRETIME", key);
      if (after !== before) moved.push([before, after]);
      await redis.send("DEL", key);
    };
    for (let left = 10; left > 0; left--) await Promise.all(Array.from({ length: 100 }, round));
    expect(moved).toEqual([]);
  });

  test("is lost for its holder, and its owner id retired at once and not by its handler", async () => {
    const fixture = await openFixture({ connect, ttlMs: 6_000, acquireTimeoutMs: 3_000 });
    const { lock, proxy, redis } = fixture;
    const user = freshUser();
    const lost = record("submit-lock:lost", lock.keyFor(user));
    const retire = record("submit-lock:retire", lock.keyFor(user));
    const held = proxy.holdRequestOnce(isAcquire);
    const { lease } = acquired(await lock.acquire(user));
    await held;
    const { signal } = lease;
    await freed(fixture, user, lease);
    await until(() => signal.aborted, { what: "the holder to be told" });
    expect(lost).toMatchObject([{ outcome: "freed" }]);
    // Its handler is still at work, and its lease would have had 4 s more.
    await until(() => proxy.commands.some(isRelease), { what: "the retire", boundMs: 2_500 });
    await until(() => retire.length > 0, { what: "the owner id to be retired" });
    expect(retire).toMatchObject([{ outcome: "final" }]);
    expect(await redis.get(lease.key)).toContain(`freed:${lease.ownerId}:`);
    // What is on its way takes nothing any more.
    await redis.send("DEL", lease.key);
    proxy.releaseHeld();
    await (await leaseOf(lock, user)).release();
    expect(await lease.release()).toBe("freed");
  });

  test("says freed also where the answer to its release was lost", async () => {
    const fixture = await openFixture({ connect, ttlMs: 40_000, acquireTimeoutMs: 20_000 });
    const user = freshUser();
    const lease = await leaseOf(fixture.lock, user);
    await freed(fixture, user, lease);
    const lost = fixture.proxy.loseReplyOnce(isRelease, { resetAfterMs: 0 });
    const releasing = lease.release();
    await lost;
    expect(await releasing).toBe("freed");
    expect(await fixture.redis.exists(lease.key)).toBe(true);
  });

  test("may be freed where Redis is full", async () => {
    const server = await forTest(startRedis({ args: ["--maxmemory-policy", "noeviction"] }));
    const fixture = await openFixture({ connect, ttlMs: 30_000, port: server.port });
    const { lock, redis } = fixture;
    const [user, other] = [freshUser(), freshUser()];
    const lease = await leaseOf(lock, user);
    await redis.send("SET", lock.keyFor(other), "1");
    await redis.send("CONFIG", "SET", "maxmemory", "1");
    expect((await lock.acquire(freshUser())).outcome).toBe("unavailable");
    expect(await freed(fixture, user, lease)).toMatchObject({ outcome: "freed" });
    const id = await lock.inspect(other).then((found) => ("id" in found && found.id) || "");
    expect(await lock.free(other, { id, ...why })).toEqual({ outcome: "freed", freeInMs: 0 });
    expect(await lock.inspect(user)).toMatchObject({ state: "freed", id: idOf(lease) });
  });
});

describe("rule 19: a tombstone", () => {
  test("of another lease means overtaken, so that nobody takes the alert for a person's doing", async () => {
    const { redis, lease } = await openHeld({ ttlMs: 9_000, acquireTimeoutMs: 4_000 });
    const { signal } = lease;
    const another = "0f8fad5b-d9cb-469f-a165-70867728950e";
    await redis.send("SET", lease.key, `freed:${another}:anna:1:x`, "PX", 20_000);
    await until(() => signal.aborted, { what: "the holder to be told" });
    expect(signal.reason).toMatchObject({ reason: "overtaken" });
    expect(await lease.release()).toBe("foreign");
    expect(await redis.exists(lease.key)).toBe(true);
    await redis.send("DEL", lease.key);
  });

  test("that somebody has made to last for ever is given an end by a second free", async () => {
    const fixture = await openFixture({ ttlMs: 20_000 });
    const user = freshUser();
    const lease = await leaseOf(fixture.lock, user);
    await freed(fixture, user, lease);
    await fixture.redis.send("PERSIST", lease.key);
    const result = await freed(fixture, user, lease);
    expect(result).toEqual({ outcome: "freed", freeInMs: 20_000 });
    expect(await fixture.redis.pttl(lease.key)).toBeGreaterThan(0);
    await fixture.redis.send("DEL", lease.key);
  });

  test("of a lease without an expiry lives for the ttlMs of that lease, whoever frees it", async () => {
    const { redis, user, lease } = await openHeld({ ttlMs: 20_000 });
    await redis.send("PERSIST", lease.key);
    const other = await openFixture({ ttlMs: 4_000 });
    const result = await other.lock.free(user, { id: idOf(lease), ...why });
    expect(result).toEqual({ outcome: "freed", freeInMs: 20_000 });
    await redis.send("DEL", lease.key);
  });
});

describe("rule 19: a lease that ran to its end", () => {
  const times = {
    ttlMs: 4_000,
    maxHoldMs: 6_000,
    acquireTimeoutMs: 2_000,
    commandTimeoutMs: 1_000,
  };

  test("leaves its holder the rest of its time, and then frees its user by itself", async () => {
    const { proxy, redis, lease } = await openHeld(times);
    const { signal } = lease;
    await until(() => signal.aborted, { what: "the holder to be told" });
    expect(signal.reason).toMatchObject({ reason: "max-hold" });
    // Told a tenth of ttlMs before the end: nothing is deleted until then.
    expect(proxy.commands.filter(isRelease)).toEqual([]);
    await until(() => proxy.commands.some(isRelease), { what: "the lock to be given back" });
    await until(async () => !(await redis.exists(lease.key)), { what: "the user to be free" });
    expect(await lease.release()).toBe("gone");
    await sleep(100);
    expect(proxy.commands.filter(isRelease)).toHaveLength(1);
  });

  test("is not deleted beside its own complete", async () => {
    const { lock, proxy, user, lease } = await openOrder(times);
    const { signal } = lease;
    const completing = new Promise<string>((resolve) => {
      signal.addEventListener("abort", () => {
        void proxy.holdRequestOnce(isComplete, { releaseAfterMs: 300 });
        resolve(lease.complete(answer));
      });
    });
    expect(["recorded", "late"]).toContain(await completing);
    // The rest of its time is over.
    await sleep(300);
    expect(proxy.commands.filter(isRelease)).toEqual([]);
    expect(foundBy(await submit(lock, user))).toBe("order 7");
  });
});

/** The two ways to end a lease with a cooldown. */
const endings: [string, (lease: Lease, cooldownMs: number) => Promise<string>, typeof isRelease][] =
  [
    ["release", (lease, cooldownMs) => lease.release({ cooldownMs }), isRelease],
    ["complete", (lease, cooldownMs) => lease.complete(answer, { cooldownMs }), isComplete],
  ];

function leftOf(attempt: SubmissionAttempt): number {
  if (attempt.outcome === "contended" && attempt.isCooldown) return attempt.expiresInMs;
  throw new Error(`expected a cooldown, but it was ${attempt.outcome}`);
}

describe.each(redisClients)("rule 19: a cooldown, with $name", ({ connect }) => {
  describe.each(endings)("that a %s leaves", (_name, end, isEnding) => {
    test("is proven to be one's own where the first answer was lost", async () => {
      const { lock, proxy, user, lease } = await openOrder({ connect });
      const lost = proxy.loseReplyOnce(isEnding, { resetAfterMs: 0 });
      const ending = end(lease, 30_000);
      await lost;
      expect(["released", "recorded"]).toContain(await ending);
      expect(leftOf(await lock.acquire(user))).toBeLessThanOrEqual(30_000 + 2);
    });
  });
});

describe("rule 19: a cooldown", () => {
  test("of a lease that its holder knows to be lost is none", async () => {
    for (const [, end] of endings) {
      const { lock, redis, lease } = await openOrder(patient);
      const { signal } = lease;
      await lock.close({ timeoutMs: 0 });
      expect(signal.aborted).toBe(true);
      expect(["released", "recorded"]).toContain(await end(lease, 30_000));
      expect(await redis.exists(lease.key)).toBe(false);
    }
  });

  test("keeps out a late request of the acquire before it, which is retired without another", async () => {
    const bench = await openWithHeldCopy({ acquireTimeoutMs: 1_900 });
    const { lock, proxy, client, redis, user, lease, retired } = bench;
    expect(await lease.release({ cooldownMs: 400 })).toBe("released");
    await until(async () => !(await redis.exists(lease.key)), { what: "the cooldown to end" });
    // In time, and the key is free: it is taken again, by an owner id that is given up.
    proxy.releaseHeld();
    await client.ping();
    await until(async () => !(await redis.exists(lease.key)), {
      what: "the late request to be retired",
      boundMs: 1_500,
    });
    expect(await retired()).toBe("final");
    expect(await redis.exists(lease.key)).toBe(false);
    await (await leaseOf(lock, user)).release();
  });

  test("that a person has ended is not set again by the retire of a late request", async () => {
    const bench = await openWithHeldCopy({ ttlMs: 20_000, acquireTimeoutMs: 5_000 });
    const { lock, proxy, client, redis, user, lease, retired } = bench;
    expect(await lease.release({ cooldownMs: 30_000 })).toBe("released");
    const found = await lock.inspect(user);
    if (found.state !== "cooldown") throw new Error(found.state);
    expect(await lock.free(user, { id: found.id, by: "anna", reason: "ticket 4711" })).toEqual({
      outcome: "freed",
      freeInMs: 0,
    });
    // In time, and the key is free: it is taken again, by an owner id that is given up.
    proxy.releaseHeld();
    await client.ping();
    expect(await retired()).toBe("final");
    expect(await redis.get(lease.key)).toBe(null);
  });
});
