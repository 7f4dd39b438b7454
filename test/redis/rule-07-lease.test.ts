import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, describe, expect, test } from "vitest";
import { record } from "../support/channels.ts";
import { freshUser } from "../support/ids.ts";
import { leaseOf } from "../support/locks.ts";
import { startRedis } from "../support/redis-server.ts";
import { until } from "../support/until.ts";
import { closeBenches, isExtend, openBench } from "./fixture.ts";

afterEach(closeBenches);

const short = { ttlMs: 600, acquireTimeoutMs: 250, commandTimeoutMs: 60 } as const;

describe("rule 7: a lease is valid for what it was promised", () => {
  test("an extend counts from its own send, not from its answer", async () => {
    const { lock, proxy } = await openBench({ ttlMs: 3_000, commandTimeoutMs: 700 });
    const lease = await leaseOf(lock, freshUser());
    proxy.holdRequests();
    await until(() => proxy.commands.some(isExtend), { what: "the watchdog" });
    const sentBefore = performance.now();
    await sleep(200);
    proxy.releaseHeld();
    const [before, slack] = [lease.remainingMs(), 5];
    await until(() => lease.remainingMs() > before, { what: "the answer" });
    const most = 0.99 * 3_000 - 2 - (performance.now() - sentBefore) + slack;
    expect(lease.remainingMs()).toBeLessThanOrEqual(most);
    await lease.release();
  });

  test("it is extended about every third of its TTL", async () => {
    const { lock, proxy } = await openBench({ ...short, ttlMs: 900 });
    const lease = await leaseOf(lock, freshUser());
    await sleep(1_600);
    const count = proxy.commands.filter(isExtend).length;
    expect(count).toBeGreaterThanOrEqual(2);
    expect(count).toBeLessThanOrEqual(6);
    await lease.release();
  });

  test("with maxHoldMs equal to ttlMs it is never extended", async () => {
    const { lock, proxy } = await openBench({ ...short, maxHoldMs: 600 });
    const { signal } = await leaseOf(lock, freshUser());
    await until(() => signal.aborted, { what: "the end of the lease" });
    expect(proxy.commands.filter(isExtend)).toEqual([]);
  });

  test("when one connection is silent, it is extended on the other", async () => {
    const { lock, proxy, redis } = await openBench({ ...short, ttlMs: 1_500 });
    const lease = await leaseOf(lock, freshUser());
    const held = proxy.holdRequestOnce(isExtend);
    await held;
    await sleep(2_000);
    expect(proxy.connections).toBe(2);
    expect(lease.remainingMs()).toBeGreaterThan(0);
    expect(lease.signal.aborted).toBe(false);
    expect(await redis.ownerOf(lease.key)).toBe(lease.ownerId);
    expect(await lease.release()).toBe("released");
  });

  test("when a connection comes back, all leases are extended at once", async () => {
    const { lock, proxy } = await openBench({ ttlMs: 30_000 });
    const leases = [await leaseOf(lock, freshUser()), await leaseOf(lock, freshUser())];
    proxy.resetAll();
    await until(() => proxy.commands.some(isExtend), { what: "the extend after the reconnect" });
    const [, , keys] = proxy.commands.find(isExtend) as string[];
    expect(keys).toBe("2");
    expect(await Promise.all(leases.map((lease) => lease.release()))).toEqual([
      "released",
      "released",
    ]);
  });

  test("a lease goes on across a connection that was away for a while", async () => {
    const { lock, proxy, redis } = await openBench({ ...short, ttlMs: 2_000 });
    const lease = await leaseOf(lock, freshUser());
    await proxy.refuse(true);
    proxy.resetAll();
    await sleep(300);
    await proxy.refuse(false);
    await sleep(2_200);
    expect(lease.signal.aborted).toBe(false);
    expect(await redis.ownerOf(lease.key)).toBe(lease.ownerId);
    expect(await lease.release()).toBe("released");
  });

  test("without an answer it is lost as expired, before another can have the key", async () => {
    const { lock, proxy, redis } = await openBench(short);
    const user = freshUser();
    const lost = record("submit-lock:lost", `lock:submit:${user}`);
    const lease = await leaseOf(lock, user);
    const { signal } = lease;
    let ownerAtTheAbort: Promise<string | undefined> | undefined;
    signal.addEventListener("abort", () => {
      ownerAtTheAbort = redis.ownerOf(lease.key);
    });
    proxy.holdRequests();
    await until(() => signal.aborted, { what: "the signal to abort" });
    expect(signal.reason).toMatchObject({ code: "SUBMIT_LOCK_LOST", reason: "expired" });
    expect(lost.messages).toMatchObject([{ outcome: "expired" }]);
    expect(lost.messages[0]?.durationMs).toBeLessThan(0.99 * 600 - 2);
    expect(await ownerAtTheAbort).toBe(lease.ownerId);
    lost.stop();
  });

  test("lost is final, also when Redis is back and the key is still there", async () => {
    const { lock, proxy, redis } = await openBench({ ...short, ttlMs: 2_000 });
    const lease = await leaseOf(lock, freshUser());
    proxy.holdRequests();
    await until(() => lease.remainingMs() === 0, { what: "the loss" });
    proxy.releaseHeld();
    await sleep(50);
    expect(lease.remainingMs()).toBe(0);
    // Made only now, and aborted from the beginning.
    expect(lease.signal.aborted).toBe(true);
    await lease.release();
    expect(await redis.exists(lease.key)).toBe(false);
  });

  test("a Redis that restarted empty has lost the lease, and its holder hears of it at once", async () => {
    const server = await startRedis();
    const { lock } = await openBench({ port: server.port, ttlMs: 30_000 });
    const lease = await leaseOf(lock, freshUser());
    const { signal } = lease;
    await server.restart();
    await until(() => signal.aborted, { what: "the signal to abort" });
    expect(signal.reason).toMatchObject({ reason: "overtaken" });
    await server.stop();
  });

  test("a lease that was released is never lost, and its signal never aborts", async () => {
    const { lock } = await openBench(short);
    const user = freshUser();
    const lost = record("submit-lock:lost", `lock:submit:${user}`);
    const lease = await leaseOf(lock, user);
    const { signal } = lease;
    await until(() => lease.remainingMs() < 500, { what: "a moment before the watchdog" });
    const releasing = lease.release();
    await sleep(700);
    await releasing;
    expect(signal.aborted).toBe(false);
    expect(lost.messages).toEqual([]);
    lost.stop();
  });
});
