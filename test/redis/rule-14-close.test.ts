import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, describe, expect, test } from "vitest";
import { LockClosedError } from "../../src/index.ts";
import { slotOf } from "../../src/stores/redis/clients/slots.ts";
import { record } from "../support/channels.ts";
import { runChild, sourceUrl } from "../support/child.ts";
import { command } from "../support/command.ts";
import { freshUser } from "../support/ids.ts";
import { acquired } from "../support/locks.ts";
import { startCluster } from "../support/redis-cluster.ts";
import { forTest, startRedis } from "../support/redis-server.ts";
import { answer, foundBy, recordKey, submit } from "../support/submissions.ts";
import { until } from "../support/until.ts";
import {
  closeFixtures,
  isAcquire,
  isComplete,
  isRelease,
  openFixture,
  openOrder,
} from "./fixture.ts";

afterEach(closeFixtures);

/** Ends a child that something keeps alive. */
const orFail = "setTimeout(() => process.exit(1), 10_000).unref();";

describe("rule 14: close", () => {
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

  test.each(process.env["TEST_CLIENTS"] === "all" ? ["ioredis", "ioredis5"] : ["ioredis"])(
    "a process ends although the second client of its Cluster was asking for the slots, with %s",
    async (library) => {
      const { ports } = await forTest(startCluster());
      const { code, stdout, stderr } = await runChild(`
      const { Cluster } = await import("${library}");
      const { portOf } = await import(${JSON.stringify(sourceUrl("stores/redis/clients/port-of.ts"))});
      const { once } = await import("node:events");
      const redis = new Cluster(${JSON.stringify(ports)});
      await once(redis, "ready");
      const duplicate = redis.duplicate.bind(redis);
      let cluster;
      redis.duplicate = (...options) => (cluster = duplicate(...options));
      const second = portOf(redis).second();
      await once(cluster, "ready");
      while (!cluster.isRefreshing) await new Promise(setImmediate);
      second.close();
      await redis.quit();
      ${orFail}
      console.log("closed");`);
      expect({ code, stdout, stderr }).toEqual({ code: 0, stdout: "closed\n", stderr: "" });
    },
  );

  test("a process ends although a slot of its node-redis Cluster had moved a moment before", async () => {
    const { ports } = await forTest(startCluster());
    const key = `lock:submit:${freshUser()}`;
    const other = slotOf(key) < 8_192 ? ports.at(-1) : ports[0];
    const target = await command(other as number, "CLUSTER", "MYID");
    const { code, stdout, stderr } = await runChild(`
      const { createCluster } = await import("redis");
      const { RedisStore } = await import(${JSON.stringify(sourceUrl("index.ts"))});
      const at = (port) => ({ socket: { host: "127.0.0.1", port } });
      const redis = createCluster({ rootNodes: ${JSON.stringify(ports)}.map(at) });
      redis.on("error", () => {});
      await redis.connect();
      const move = ["CLUSTER", "SETSLOT", "${slotOf(key)}", "NODE", "${target}"];
      for (const { client } of redis.masters) await client.sendCommand(move);
      const discover = redis._slots.rediscover.bind(redis._slots);
      const discovering = new Promise((begins) => {
        redis._slots.rediscover = (...args) => (begins(), discover(...args));
      });
      const times = { ttlMs: 10_000, maxHoldMs: 10_000, acquireTimeoutMs: 1_000, commandTimeoutMs: 500 };
      const command = { key: "${key}", ownerId: crypto.randomUUID(), times, holder: "" };
      const store = new RedisStore(redis);
      const end = store.attach(() => {});
      store.acquire({ command, onlyLooks: false, answer: () => {} });
      await discovering;
      await end();
      await redis.close();
      ${orFail}
      console.log("closed");`);
    expect({ code, stdout, stderr }).toEqual({ code: 0, stdout: "closed\n", stderr: "" });
  });
});

describe("rule 14: close and what is being completed", () => {
  test("it waits for a complete that is answered, and for the retire behind it", async () => {
    const { lock, proxy, redis } = await openFixture({ ttlMs: 20_000, acquireTimeoutMs: 5_000 });
    const user = freshUser();
    const retire = record("submit-lock:retire", lock.keyFor(user));
    const held = proxy.holdRequestOnce(isAcquire, { resetClientAfterMs: 0 });
    const { lease } = acquired(await submit(lock, user));
    await held;
    proxy.holdRequests(300);
    const completing = lease.complete(answer);
    await lock.close({ timeoutMs: 30_000 });
    expect(await redis.exists(recordKey(lease.key))).toBe(true);
    expect(await redis.exists(lease.key)).toBe(false);
    expect(await completing).toBe("recorded");
    expect(retire).toMatchObject([{ outcome: "final" }]);
  });

  test("what is unanswered has all of timeoutMs to be recorded", async () => {
    const times = { ttlMs: 20_000, acquireTimeoutMs: 300, commandTimeoutMs: 50 };
    const { lock, proxy, lease } = await openOrder(times);
    await proxy.refuse(true);
    proxy.resetAll();
    const completing = lease.complete(answer);
    const closing = lock.close({ timeoutMs: 30_000 });
    // Longer than 2 × acquireTimeoutMs.
    await sleep(1_500);
    await proxy.refuse(false);
    expect(await completing).toBe("recorded");
    await closing;
  });

  test("after 2 × acquireTimeoutMs it drops what is unanswered, says so, and leaves the lock to run out", async () => {
    const times = { ttlMs: 5_000, acquireTimeoutMs: 300, commandTimeoutMs: 50 };
    const { lock, proxy, client, redis, user, lease } = await openOrder(times);
    const complete = record("submit-lock:complete", lock.keyFor(user));
    await proxy.refuse(true);
    proxy.resetAll();
    // What it writes before it notices, the client itself writes again.
    await until(() => client.status !== "ready", { what: "the client to notice" });
    const completing = lease.complete(answer);
    const from = performance.now();
    await lock.close({ timeoutMs: 0 });
    const took = performance.now() - from;
    expect(took).toBeGreaterThanOrEqual(2 * 300 - 1);
    expect(took).toBeLessThan(5_000);
    expect(await completing).toBe("unconfirmed");
    expect(complete).toMatchObject([
      { outcome: "unconfirmed", cause: expect.any(LockClosedError) },
    ]);
    await proxy.refuse(false);
    await until(async () => !(await redis.exists(lease.key)), { what: "the lock to run out" });
    expect(await redis.exists(recordKey(lease.key))).toBe(false);
    expect(proxy.commands.some((argv) => isComplete(argv) || isRelease(argv))).toBe(false);
  });

  test("an answer that comes after it is kept while the client is open", async () => {
    const { lock, user, lease } = await openOrder();
    const { lock: other } = await openFixture();
    await lock.close({ timeoutMs: 0 });
    expect(await lease.complete(answer)).toBe("recorded");
    expect(foundBy(await submit(other, user))).toBe("order 7");
  });

  test.each([
    ["before", "void lease.complete({ status: 201 }); await lock.close();"],
    ["after", "await lock.close({ timeoutMs: 0 }); void lease.complete({ status: 201 });"],
  ])(
    "a process whose handler completes just %s it, with Redis silent, ends by itself",
    async (_when, ending) => {
      const server = await forTest(startRedis());
      const child = runChild(`
        const { once } = await import("node:events");
        const { Redis } = await import("ioredis");
        const { RedisStore, SubmitLock } = await import(${JSON.stringify(sourceUrl("index.ts"))});
        const redis = new Redis(${server.port});
        const store = new RedisStore(redis);
        const lock = new SubmitLock({ store, acquireTimeoutMs: 500, maxHoldMs: 600_000 });
        await once(redis, "ready");
        let lease;
          while (lease === undefined) ({ lease } = await lock.acquire("42", { submission: { id: "cart 7" } }));
        process.kill(${server.pid}, "SIGSTOP");
        ${ending}
        redis.disconnect();
        console.log("closed");`);
      expect(await child).toEqual({ code: 0, stdout: "closed\n", stderr: "" });
      server.resume();
    },
  );
});
