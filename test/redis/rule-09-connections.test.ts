import { setTimeout as sleep } from "node:timers/promises";
import type { Redis } from "ioredis";
import { afterEach, describe, expect, test, vi } from "vitest";
import { RedisStore } from "../../src/index.ts";
import { closeClient, redisClients, statusOf } from "../support/clients.ts";
import { freePort } from "../support/free-port.ts";
import { freshUser } from "../support/ids.ts";
import { acquired, causeOf, leaseOf, openLock } from "../support/locks.ts";
import { startProxy } from "../support/proxy.ts";
import { forTest, sharedRedisPort, startRedis } from "../support/redis-server.ts";
import { scriptCallsOf } from "../support/script-calls.ts";
import { until } from "../support/until.ts";
import { closeFixtures, type Fixture, isAcquire, openFixture } from "./fixture.ts";

afterEach(closeFixtures);

/** One submit every 5 ms, each for another user, for a second. */
async function submits({ lock }: Fixture): Promise<string[]> {
  const attempts = [];
  for (let i = 0; i < 200; i++) {
    attempts.push(lock.acquire(freshUser()));
    await sleep(5);
  }
  return (await Promise.all(attempts)).map(({ outcome }) => outcome);
}

/** Redis is away, and its client knows it. */
async function goAway({ proxy, client }: Fixture): Promise<void> {
  await proxy.refuse(true);
  proxy.resetAll();
  await until(() => statusOf(client) !== "ready", { what: "the client to notice" });
}

const quick = { acquireTimeoutMs: 300, commandTimeoutMs: 100, ttlMs: 1_000 } as const;

describe.each(redisClients)("rule 9: connections, with $name", ({ connect }) => {
  test.each([
    ["that waits for ever", {}],
    ["that times commands out, whose late answers it drops", { commandTimeout: 100 }],
  ])(
    "a silent connection gets nothing more, and recovers: a client %s",
    async (_n, clientOptions) => {
      const fixture = await openFixture({ ...quick, connect, clientOptions });
      const { proxy, lock, client } = fixture;
      const before = proxy.count("eval");
      const duplicates = vi.spyOn(client as Redis, "duplicate");
      proxy.holdRequests();
      const outcomes = await submits(fixture);
      expect(new Set(outcomes)).toEqual(new Set(["unavailable"]));
      // 0.9 × commandTimeoutMs of calls, and a probe now and then; each attempt alone would make several.
      expect(proxy.count("eval") - before).toBeLessThan(100);
      proxy.releaseHeld();
      await lock.withLock(freshUser(), { waitMs: 10_000 }, () => {});
      // The second connection serves for a while; without it the first is trusted again at once.
      for (const { value } of duplicates.mock.results) closeClient(value as Redis);
      const sent = scriptCallsOf(client);
      await until(
        async () => {
          const { key } = await leaseOf(lock, freshUser());
          return sent.some(({ argv }) => argv.includes(key));
        },
        { what: "a lock that was acquired on the first connection" },
      );
    },
  );

  test("a connection that was silent comes after one that was not", async () => {
    const { proxy, lock, client } = await openFixture({ ...quick, connect });
    const held = proxy.holdRequestOnce(isAcquire);
    await lock.withLock(freshUser(), { waitMs: 10_000 }, () => {});
    await held;
    proxy.releaseHeld();
    const sent = scriptCallsOf(client);
    // The first answers again; it may be a master that has not heard of the election of another.
    for (let i = 0; i < 10; i++) await lock.withLock(freshUser(), { waitMs: 10_000 }, () => {});
    expect(sent.filter(({ argv }) => isAcquire(argv))).toEqual([]);
  });

  test("a Redis that is away makes the lock unavailable within its bound, and is used when it is back", async () => {
    const fixture = await openFixture({ ...quick, connect, acquireTimeoutMs: 500 });
    const { lock, proxy } = fixture;
    await goAway(fixture);
    const from = performance.now();
    expect(causeOf(await lock.acquire(freshUser()))).toMatchObject({
      code: "SUBMIT_LOCK_UNAVAILABLE",
    });
    expect(performance.now() - from).toBeLessThan(3_000);
    await proxy.refuse(false);
    await lock.withLock(freshUser(), { waitMs: 10_000 }, () => {});
  });

  test("an attempt that begins while Redis is away acquires when it comes back within the budget", async () => {
    const patient = { ttlMs: 40_000, acquireTimeoutMs: 15_000 };
    const fixture = await openFixture({ ...patient, connect });
    const { lock, proxy } = fixture;
    await goAway(fixture);
    const attempt = lock.acquire(freshUser());
    await sleep(200);
    await proxy.refuse(false);
    const { lease, confirmed } = acquired(await attempt);
    expect(confirmed).toBe(false);
    await lease.release();
  });

  test("nothing is queued for a Redis that is away", async () => {
    const fixture = await openFixture({ ...quick, connect });
    const { lock, proxy, redis } = fixture;
    const user = freshUser();
    await goAway(fixture);
    expect((await lock.acquire(user)).outcome).toBe("unavailable");
    const before = proxy.commands.filter(isAcquire).length;
    await proxy.refuse(false);
    await lock.withLock(freshUser(), { waitMs: 10_000 }, () => {});
    expect(proxy.commands.slice(before).some((argv) => argv.join().includes(user))).toBe(false);
    expect(await redis.exists(`lock:submit:${user}`)).toBe(false);
  });

  test("a client that is just coming up is no reason for a second connection", async () => {
    // The connection is accepted, and the handshake never answered.
    const proxy = await forTest(startProxy(sharedRedisPort()));
    proxy.swallowRequests(true);
    const client = connect(proxy.port);
    const lock = openLock({ store: new RedisStore(client), ...quick });
    const duplicate = vi.spyOn(client as Redis, "duplicate");
    const cause = causeOf(await lock.acquire(freshUser()));
    expect(cause.message).toMatch(/the last request was not executed/);
    expect(duplicate).not.toHaveBeenCalled();
  });

  test("a client that comes up for the first time in the middle of an attempt serves it", async () => {
    const port = await freePort();
    const client = connect(port);
    const patient = { ttlMs: 40_000, acquireTimeoutMs: 15_000 };
    const lock = openLock({ store: new RedisStore(client), ...patient });
    const attempt = lock.acquire(freshUser());
    await forTest(startRedis({ port }));
    expect((await attempt).outcome).toBe("acquired");
  });

  test("a client that the application has closed gets no second connection", async () => {
    const { lock, client, proxy } = await openFixture({ ...quick, connect });
    closeClient(client);
    await until(() => statusOf(client) === "end", { what: "its end" });
    expect((await lock.acquire(freshUser())).outcome).toBe("unavailable");
    await until(() => proxy.connections === 0, { what: "no connection to be left" });
  });

  test("the second connection is opened when it is needed, and closed with the lock", async () => {
    const { lock, client, proxy } = await openFixture({
      ...quick,
      connect,
      ttlMs: 20_000,
      acquireTimeoutMs: 10_000,
    });
    await (await leaseOf(lock, freshUser())).release();
    expect(proxy.connections).toBe(1);
    const lost = proxy.loseReplyOnce(isAcquire);
    const { lease } = acquired(await lock.acquire(freshUser()));
    await lost;
    expect(proxy.connections).toBe(2);
    await lease.release();
    await lock.close();
    await until(() => proxy.connections === 1, { what: "the second connection to be closed" });
    expect(statusOf(client)).toBe("ready");
  });

  test("a path that swallows everything is left for a new connection", async () => {
    const { lock, proxy } = await openFixture({ ...quick, connect });
    await lock.check();
    proxy.swallowRequests(true);
    expect((await lock.acquire(freshUser())).outcome).toBe("unavailable");
    // The two connections of now stay silent for ever, and any new one would do.
    proxy.swallowRequests(false);
    await lock.withLock(freshUser(), { waitMs: 20_000 }, () => {});
  });
});
