import { afterEach, describe, expect, test } from "vitest";
import { freshUser } from "../support/ids.ts";
import { acquired, leaseOf } from "../support/locks.ts";
import { block, closeFixtures, isAcquire, openFixture, openHeld, ownersOf } from "./fixture.ts";

afterEach(closeFixtures);

describe("rule 1: one owner id for one attempt", () => {
  test("every attempt has an owner id of its own", async () => {
    const { lock, redis } = await openFixture();
    const ids = new Set<string>();
    for (let i = 0; i < 5; i++) {
      const lease = await leaseOf(lock, "one-user-".concat(freshUser()));
      expect(await redis.ownerOf(lease.key)).toBe(lease.ownerId);
      ids.add(lease.ownerId);
      await lease.release();
    }
    expect(ids.size).toBe(5);
  });

  test("each try of a waiting withLock is a new attempt", async () => {
    const { lock, proxy, user, lease } = await openHeld();
    const from = proxy.commands.length;
    await lock.withLock(user, { waitMs: 200 }, () => {}).catch(() => {});
    const tries = proxy.commands.slice(from).filter(isAcquire);
    const ids = new Set(tries.flatMap(ownersOf));
    expect(tries.length).toBeGreaterThan(1);
    expect(ids.size).toBe(tries.length);
    await lease.release();
  });

  test("every copy of one attempt carries the same owner id", async () => {
    const { lock, proxy } = await openFixture();
    const lost = proxy.loseReplyOnce(isAcquire);
    const { lease } = acquired(await lock.acquire(freshUser()));
    await lost;
    const ids = proxy.commands.filter(isAcquire).flatMap(ownersOf);
    expect(ids.length).toBeGreaterThan(1);
    expect(new Set(ids)).toEqual(new Set([lease.ownerId]));
    await lease.release();
  });

  test("the lease counts from before the first send, not from the answer", async () => {
    const { lock, proxy } = await openFixture({ commandTimeoutMs: 700 });
    proxy.holdRequests(200);
    const from = performance.now();
    const { lease } = acquired(await lock.acquire(freshUser()));
    const passed = performance.now() - from;
    expect(passed).toBeGreaterThan(150);
    expect(lease.remainingMs()).toBeLessThanOrEqual(0.99 * 4_000 - 2 - passed + 5);
    await lease.release();
  });

  test("the lease counts from before the copy waits in the batch of its turn", async () => {
    const { lock } = await openFixture();
    const attempt = lock.acquire(freshUser());
    block(50);
    const { lease } = acquired(await attempt);
    expect(lease.remainingMs()).toBeLessThanOrEqual(0.99 * 4_000 - 2 - 50);
    await lease.release();
  });
});
