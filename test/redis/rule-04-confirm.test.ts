import { afterEach, describe, expect, test } from "vitest";
import { record } from "../support/channels.ts";
import { redisClients } from "../support/clients.ts";
import { freshUser } from "../support/ids.ts";
import { acquired } from "../support/locks.ts";
import { until } from "../support/until.ts";
import { closeFixtures, isAcquire, openFixture, openHeld, takePulse } from "./fixture.ts";

afterEach(closeFixtures);

/** A budget that no test waits for, so that an answer well within it was not luck. */
const patient = { ttlMs: 40_000, acquireTimeoutMs: 20_000 } as const;

describe.each(redisClients)("rule 4, P2: silence is confirmed, with $name", ({ connect }) => {
  test("a reply that was lost after Redis had applied it is confirmed on the other connection", async () => {
    const { lock, proxy, redis } = await openFixture({ ...patient, connect });
    const user = freshUser();
    const acquire = record("submit-lock:acquire", `lock:submit:${user}`);
    const pulse = await takePulse();
    const lost = proxy.loseReplyOnce(isAcquire);
    const from = performance.now();
    const { lease, confirmed } = acquired(await lock.acquire(user));
    const tookMs = performance.now() - from;
    // The fixture's `commandTimeoutMs`, and what a second connection takes.
    expect(tookMs).toBeLessThan(pulse.atMost(300));
    await lost;
    expect(confirmed).toBe(true);
    expect(proxy.connections).toBe(2);
    // A copy after each `commandTimeoutMs` of 100 ms: how many depends on the machine.
    const copies = acquire[0]?.copies;
    expect(copies).toBeGreaterThan(1);
    expect(copies).toBeLessThanOrEqual(1 + Math.ceil(tookMs / 100));
    expect(await redis.ownerOf(lease.key)).toBe(lease.ownerId);
    expect(await lease.release()).toBe("released");
    expect(await redis.exists(lease.key)).toBe(false);
  });

  test("a connection that was reset is confirmed at once, not after commandTimeoutMs", async () => {
    const options = { ...patient, commandTimeoutMs: 10_000, connect };
    const { lock, proxy, redis } = await openFixture(options);
    const pulse = await takePulse();
    const lost = proxy.loseReplyOnce(isAcquire, { resetAfterMs: 0 });
    const from = performance.now();
    const { lease, confirmed } = acquired(await lock.acquire(freshUser()));
    expect(performance.now() - from).toBeLessThan(pulse.atMost(200));
    await lost;
    expect(confirmed).toBe(true);
    expect(await lease.release()).toBe("released");
    // The client's own re-send may bring the key back, until the retire has asked again.
    await until(async () => !(await redis.exists(lease.key)), { what: "the key to be gone" });
  });

  test("a rival who holds the key is not taken for us by a confirm", async () => {
    const { lock, proxy, user, lease } = await openHeld({ ...patient, connect });
    const lost = proxy.loseReplyOnce(isAcquire);
    expect((await lock.acquire(user)).outcome).toBe("contended");
    await lost;
    await lease.release();
  });

  test("a request that never reached Redis is taken by its confirm", async () => {
    const { lock, proxy, redis } = await openFixture({ ...patient, connect });
    const held = proxy.holdRequestOnce(isAcquire);
    const { lease, confirmed } = acquired(await lock.acquire(freshUser()));
    await held;
    expect(confirmed).toBe(true);
    expect(await redis.ownerOf(lease.key)).toBe(lease.ownerId);
    expect(await lease.release()).toBe("released");
  });

  test("a whole crowd whose replies are lost gets through", async () => {
    const { lock, proxy, redis } = await openFixture({ ...patient, connect });
    const lost = proxy.loseReplyOnce(isAcquire);
    // As many as share one call.
    const users = Array.from({ length: 8 }, freshUser);
    const attempts = (await Promise.all(users.map((user) => lock.acquire(user)))).map(acquired);
    await lost;
    expect(attempts.every(({ confirmed }) => confirmed)).toBe(true);
    const leases = attempts.map(({ lease }) => lease);
    await Promise.all(leases.map((lease) => lease.release()));
    for (const { key } of leases) expect(await redis.exists(key)).toBe(false);
  });
});
