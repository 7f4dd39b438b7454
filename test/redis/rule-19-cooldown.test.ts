import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, describe, expect, test } from "vitest";
import type { Lease, SubmissionAttempt } from "../../src/index.ts";
import { redisClients } from "../support/clients.ts";
import { leaseOf } from "../support/locks.ts";
import { answer } from "../support/submissions.ts";
import { until } from "../support/until.ts";
import {
  closeFixtures,
  isComplete,
  isRelease,
  openHeld,
  openOrder,
  openWithHeldCopy,
} from "./fixture.ts";

afterEach(closeFixtures);

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
    test("ends at the same time in every copy: one that comes late does not lengthen it", async () => {
      const { proxy, redis, lease } = await openOrder({ connect });
      const held = proxy.holdRequestOnce(isEnding, { releaseAfterMs: 900 });
      const ending = end(lease, 3_000);
      await held;
      expect(["released", "recorded"]).toContain(await ending);
      const first = Number(await redis.send("PEXPIRETIME", lease.key));
      expect(first).toBeLessThanOrEqual(Date.now() + 3_000);
      await sleep(1_000);
      expect(await redis.send("PEXPIRETIME", lease.key)).toBe(first);
      const copies = proxy.commands.filter(isEnding);
      expect(copies.length).toBeGreaterThan(1);
      expect(new Set(copies.map((argv) => argv.join(" "))).size).toBe(1);
    });

    test("is proven to be one's own where the first answer was lost", async () => {
      const { lock, proxy, user, lease } = await openOrder({ connect });
      const lost = proxy.loseReplyOnce(isEnding, { resetAfterMs: 0 });
      const ending = end(lease, 30_000);
      await lost;
      expect(["released", "recorded"]).toContain(await ending);
      expect(leftOf(await lock.acquire(user))).toBeLessThanOrEqual(30_000);
    });
  });
});

describe("rule 19: a cooldown", () => {
  test("of a lease that its holder knows to be lost is none", async () => {
    const times = { ttlMs: 2_000, acquireTimeoutMs: 500, commandTimeoutMs: 50 };
    for (const [, end] of endings) {
      const { lock, redis, lease } = await openOrder(times);
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

  test("that somebody has made to last for ever is given an end", async () => {
    const { lock, redis, user, lease } = await openHeld({ maxHoldMs: 60_000 });
    await lease.release({ cooldownMs: 30_000 });
    await redis.send("PERSIST", lease.key);
    expect((await lock.acquire(user)).outcome).toBe("contended");
    const left = await redis.pttl(lease.key);
    expect(left).toBeGreaterThan(0);
    expect(left).toBeLessThanOrEqual(60_000);
    await redis.send("DEL", lease.key);
  });
});
