import { setTimeout as sleep } from "node:timers/promises";
import type { Redis } from "ioredis";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import {
  type AnySubmitLockError,
  RedisStore,
  type RedisStoreOptions,
  type SubmitLock,
} from "../../src/index.ts";
import { asking } from "../support/asking.ts";
import {
  type AnyRedis,
  closeClients,
  clusterClients,
  everyRedisClient,
  isNodeRedis,
  redisClients,
  statusOf,
  untilReady,
} from "../support/clients.ts";
import { command } from "../support/command.ts";
import { freshUser } from "../support/ids.ts";
import { acquired, causeOf, closeLocks, commandOf, leaseOf, openLock } from "../support/locks.ts";
import { type KeyObserver, observer } from "../support/observer.ts";
import { startCluster } from "../support/redis-cluster.ts";
import { forTest, type RedisServer, sharedRedisPort, startRedis } from "../support/redis-server.ts";
import { userOnFirst } from "../support/slot-move.ts";
import { answer, foundBy, submissionOf, submit } from "../support/submissions.ts";
import { until } from "../support/until.ts";

afterEach(async () => {
  await closeLocks();
  closeClients();
});

describe.each(everyRedisClient)("with $name", ({ name, connect }) => {
  test.each([
    ["stringNumbers", { stringNumbers: true }],
    ["enableAutoPipelining", { enableAutoPipelining: true }],
    ["no ready check", { enableReadyCheck: false }],
    ["no offline queue", { enableOfflineQueue: false }],
    ["a commandTimeout", { commandTimeout: 5_000 }],
    ["no second tries", { maxRetriesPerRequest: 0, retryStrategy: null }],
  ])("a client with %s serves", async (_name, options) => {
    const client = connect(sharedRedisPort(), options);
    await untilReady(client);
    const [lock, user] = [openLock({ store: new RedisStore(client) }), freshUser()];
    const { lease, confirmed } = acquired(await lock.acquire(user));
    expect(confirmed).toBe(false);
    expect((await lock.acquire(user)).outcome).toBe("contended");
    expect(await lease.release()).toBe("released");
  });

  test.each<RedisStoreOptions>([{}, { ackReplicas: 1 }])(
    "a lock on a client that was not connected yet connects nothing: %j",
    async (options) => {
      const client = connect(sharedRedisPort(), { lazyConnect: true });
      const duplicate = vi.spyOn(client as Redis, "duplicate");
      openLock({ store: new RedisStore(client, options) });
      await sleep(100);
      expect([statusOf(client), duplicate.mock.calls.length]).toEqual(["wait", 0]);
      await client.connect();
      if (options.ackReplicas === undefined) return;
      await until(() => duplicate.mock.calls.length === 1, { what: "the connection that waits" });
    },
  );

  // A node-redis client is connected by the application alone.
  test.skipIf(isNodeRedis(name))(
    "a lazy client is connected by the first attempt, which acquires as soon as it is up",
    async () => {
      const client = connect(sharedRedisPort(), { lazyConnect: true });
      const lock = openLock({ store: new RedisStore(client) });
      const attempt = lock.acquire(freshUser());
      await until(() => statusOf(client) !== "wait", { what: "the attempt to connect it" });
      expect(await acquired(await attempt).lease.release()).toBe("released");
    },
  );

  test.skipIf(isNodeRedis(name))(
    "a lazy client that finds no server makes no unhandled rejection",
    async () => {
      const client = connect(1, { lazyConnect: true, retryStrategy: null });
      const lock = openLock({ store: new RedisStore(client), acquireTimeoutMs: 50 });
      expect((await lock.acquire(freshUser())).outcome).toBe("unavailable");
      await until(() => statusOf(client) === "end", { what: "the client to give up" });
    },
  );

  test("the application's own client is left open, and as it was", async () => {
    const client = connect(sharedRedisPort());
    await untilReady(client);
    const events = ["ready", "close", "end", "error", "-node", "select"];
    // On a node-redis client, the first lock leaves one dispatcher for each event.
    if (isNodeRedis(name)) await openLock({ store: new RedisStore(client) }).close();
    const before = events.map((event) => client.listenerCount(event));
    const lock = openLock({ store: new RedisStore(client) });
    await lock.withLock(freshUser(), {}, () => {});
    await lock.close();
    expect(statusOf(client)).toBe("ready");
    expect(await client.ping()).toBe("PONG");
    expect(events.map((event) => client.listenerCount(event))).toEqual(before);
  });

  test("an application that takes listeners back before the store does keeps its others", async () => {
    const client = connect(sharedRedisPort());
    await untilReady(client);
    const errors: Error[] = [];
    client.on("error", (error: Error) => void errors.push(error));
    const events = ["connect", "ready", "reconnecting", "close", "end", "terminated"];
    const listener = () => {};
    for (let i = 0; i < 2; i++) {
      for (const event of events) client.on(event, listener);
      const lock = openLock({ store: new RedisStore(client) });
      await lock.withLock(freshUser(), {}, () => {});
      for (const event of events) client.off(event, listener);
      await lock.close();
    }
    // Of an emitter without a listener, this would end the process.
    client.emit("error", new Error("an error of the client"));
    expect(errors).toHaveLength(1);
  });
});

describe("one pair of connections", () => {
  let server: RedisServer;
  let redis: KeyObserver;
  const warnings: Error[] = [];
  const keepWarning = (warning: Error) => warnings.push(warning);
  beforeEach(async () => {
    server = await startRedis();
    redis = observer(server.port);
    warnings.length = 0;
    process.on("warning", keepWarning);
  });
  afterEach(async () => {
    process.off("warning", keepWarning);
    await closeLocks();
    closeClients();
    await server.stop();
  });

  /** What the client is called, and so every duplicate of it. */
  const connectionName = "shop";
  const connections = async () =>
    String(await redis.send("CLIENT", "LIST")).match(/ name=shop /g)?.length ?? 0;
  const listenersOf = (client: AnyRedis) =>
    client.eventNames().map((name) => [name, client.listenerCount(name)]);
  const times = { ttlMs: 20_000, acquireTimeoutMs: 10_000, commandTimeoutMs: 50 } as const;
  const fifteen = (client: AnyRedis): SubmitLock[] =>
    Array.from({ length: 15 }, (_, i) =>
      openLock({ store: new RedisStore(client), keyPrefix: `lock:route-${i}:`, ...times }),
    );

  describe.each(redisClients)(
    "stores on one client share its connections, with $name",
    ({ connect, name }) => {
      test("fifteen stores with a lock each listen once, and open one second connection while Redis is paused", async () => {
        const client = connect(server.port, { connectionName });
        await untilReady(client);
        // On a node-redis client, the first lock leaves one dispatcher for each event.
        if (isNodeRedis(name)) await openLock({ store: new RedisStore(client) }).close();
        const listeners = listenersOf(client);
        const locks = fifteen(client);
        expect(client.listenerCount("ready")).toBe(1);
        // Warnings are emitted in a later turn.
        await new Promise(setImmediate);
        expect(warnings).toEqual([]);
        expect(await connections()).toBe(1);

        await redis.send("CLIENT", "PAUSE", 60_000, "WRITE");
        const user = freshUser();
        const leases = Promise.all(locks.map((lock) => leaseOf(lock, user)));
        await until(async () => (await connections()) === 2, { what: "the second connection" });
        await redis.send("CLIENT", "UNPAUSE");
        for (const lease of await leases) await lease.release();
        await until(async () => (await connections()) === 2, { what: "no third connection" });

        const [last, ...others] = locks as [SubmitLock, ...SubmitLock[]];
        for (const lock of others) await lock.close();
        expect(client.listenerCount("ready")).toBe(1);
        // A copy from the pause may have brought the key back for 50 ms (P3).
        await last.withLock(user, { waitMs: 20_000 }, () => {});
        await last.close();
        expect(listenersOf(client)).toEqual(listeners);
        await until(async () => (await connections()) === 1, {
          what: "the second connection to be closed",
        });
        expect(warnings).toEqual([]);
      });

      test("a store on which no lock was made listens to nothing", async () => {
        const client = connect(server.port);
        const listeners = listenersOf(client);
        new RedisStore(client);
        expect(listenersOf(client)).toEqual(listeners);
      });
    },
  );
});

const times = {
  ttlMs: 60_000,
  acquireTimeoutMs: 1_000,
  commandTimeoutMs: 250,
  maxHoldMs: 60_000,
};

describe.each(clusterClients)("a Cluster that is down, with $name", ({ connect }) => {
  test("grants nothing, and answers what cluster-allow-reads-when-down lets it read", async () => {
    const cluster = await forTest(startCluster(["--cluster-node-timeout", "500"]));
    const client = await untilReady(connect(cluster.ports));
    const store = new RedisStore(client);
    const lock = openLock({ store, ...times });
    const newUser = () => userOnFirst(cluster, (one) => lock.keyFor(one));
    const [holder, buyer, fresh, user] = [newUser(), newUser(), newUser(), newUser()];
    const lease = await leaseOf(lock, holder);
    await (await submissionOf(lock, buyer)).complete(answer);
    const own = commandOf({ key: lock.keyFor(user), times });
    const asked = asking(store);
    expect((await asked.acquire(own).reply).kind).toBe("taken");

    await cluster.nodes[2]?.kill();
    const [port, other] = cluster.ports as [number, number];
    const isDown = async () =>
      String(await command(port, "CLUSTER", "INFO")).includes("cluster_state:fail");
    await until(isDown, { what: "the Cluster to be down" });
    for (const [reads, ...expected] of [
      ["no", "unavailable", "unavailable", "unknown", "no"],
      ["yes", "contended", "order 7", "completed", "held"],
    ] as const) {
      await command(port, "CONFIG", "SET", "cluster-allow-reads-when-down", reads);
      const { code } = causeOf(await lock.acquire(fresh)) as AnySubmitLockError;
      expect(code).toBe("SUBMIT_LOCK_UNAVAILABLE");
      const lookUp = async () => {
        const { outcome } = await lock.lookUp(buyer, { submission: { id: "cart 7" } });
        return (reads === "no" || outcome !== "unknown") && outcome;
      };
      expect([
        (await lock.acquire(holder)).outcome,
        foundBy(await submit(lock, buyer)),
        // A busy node may answer late.
        await until(lookUp, { what: "an answer to the look-up" }),
        (await lock.inspect(holder).catch(() => ({ state: "no" }))).state,
      ]).toEqual(expected);
      // A confirm reads its own lock, which nobody else can have been given.
      const isConfirmed = async () => (await asked.acquire(own).reply).kind === "mine";
      if (reads === "no") expect(await isConfirmed()).toBe(false);
      // A busy node may answer late.
      else await until(isConfirmed, { what: "the confirm" });
      for (const ask of [asked.extend, asked.release]) {
        expect(["unsent", "unknown"]).toContain((await ask(own).reply).kind);
      }
    }

    // The nodes that are left serve on: nothing was taken meanwhile, and nothing is left.
    for (const node of [port, other]) {
      await command(node, "CONFIG", "SET", "cluster-require-full-coverage", "no");
    }
    await lock.withLock(fresh, { waitMs: 20_000 }, () => {});
    // ioredis may have repeated the release of before; a busy node may answer late.
    await until(async () => ["done", "gone"].includes((await asked.release(own).reply).kind), {
      what: "the release",
    });
    expect(await lease.release()).toBe("released");
    await until(() => lock.stats().retiring === 0, { what: "every retire to end" });
    expect(await command(port, "EXISTS", lock.keyFor(fresh))).toBe(0);
  });
});
