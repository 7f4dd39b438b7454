import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, describe, expect, test } from "vitest";
import { record } from "../support/channels.ts";
import { runChild, sourceUrl } from "../support/child.ts";
import { freshUser } from "../support/ids.ts";
import { acquired, leaseOf, openLock } from "../support/locks.ts";
import { sharedRedisPort } from "../support/redis-server.ts";
import { until } from "../support/until.ts";
import { closeFixtures, isAcquire, openFixture } from "./fixture.ts";

afterEach(closeFixtures);

describe("rule 14: close", () => {
  test("it waits until every owner id has been retired", async () => {
    const { lock, proxy } = await openFixture({ acquireTimeoutMs: 800 });
    const user = freshUser();
    const retire = record("submit-lock:retire", `lock:submit:${user}`);
    const held = proxy.holdRequestOnce(isAcquire);
    const { lease } = acquired(await lock.acquire(user));
    await held;
    await lease.release();
    await lock.close();
    expect(retire.messages).toMatchObject([{ outcome: "final" }]);
    retire.stop();
  });

  test("no connection and no listener comes back after it, also with Redis silent", async () => {
    const times = { ttlMs: 1_000, acquireTimeoutMs: 200, commandTimeoutMs: 50 };
    const { lock, proxy, client } = await openFixture(times);
    proxy.holdRequests();
    expect((await lock.acquire(freshUser())).outcome).toBe("unavailable");
    await lock.close({ timeoutMs: 0 });
    await until(() => proxy.connections === 1, { what: "the second connection to be closed" });
    // The owner id is still being retired in the background.
    for (const end = performance.now() + 500; performance.now() < end; await sleep(10)) {
      expect(proxy.connections).toBe(1);
    }
    expect(["ready", "close", "end"].map((event) => client.listenerCount(event))).toEqual([
      0, 0, 0,
    ]);
  });

  test("it leaves the locks of the same store alone", async () => {
    const { lock, store } = await openFixture();
    const other = openLock({ store });
    const lease = await leaseOf(other, freshUser());
    await lock.close();
    expect(lease.remainingMs()).toBeGreaterThan(0);
    expect(await lease.release()).toBe("released");
    await other.withLock(freshUser(), {}, () => {});
  });

  test("a store serves a new lock after its last one was closed", async () => {
    const { lock, store } = await openFixture();
    await lock.close();
    await openLock({ store }).withLock(freshUser(), {}, () => {});
  });

  test("a store whose client is still open releases what was lost at the close", async () => {
    const { lock, redis } = await openFixture();
    const lease = await leaseOf(lock, freshUser());
    await lock.close({ timeoutMs: 0 });
    expect(await redis.ownerOf(lease.key)).toBe(lease.ownerId);
    expect(await lease.release()).toBe("released");
    expect(await redis.exists(lease.key)).toBe(false);
  });

  test("a process that closes its locks and then its client ends by itself", async () => {
    const { code, stdout, stderr } = await runChild(`
      const { Redis } = await import("ioredis");
      const { RedisStore, SubmitLock } = await import(${JSON.stringify(sourceUrl("index.ts"))});
      const redis = new Redis(${sharedRedisPort()});
      const lock = new SubmitLock({ store: new RedisStore(redis) });
      await lock.withLock(${JSON.stringify(freshUser())}, { waitMs: 5_000 }, () => {});
      await lock.close();
      await redis.quit();
      console.log("closed");`);
    expect({ code, stdout, stderr }).toEqual({ code: 0, stdout: "closed\n", stderr: "" });
  });
});
