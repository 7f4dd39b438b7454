import { afterEach, describe, expect, test } from "vitest";
import { RedisStore } from "../../src/index.ts";
import {
  closeClients,
  everyRedisClient,
  isNodeRedis,
  statusOf,
  untilReady,
} from "../support/clients.ts";
import { freshUser } from "../support/ids.ts";
import { acquired, closeLocks, leaseOf, openLock } from "../support/locks.ts";
import { observer } from "../support/observer.ts";
import { startProxy } from "../support/proxy.ts";
import { forTest, sharedRedisPort } from "../support/redis-server.ts";
import { until } from "../support/until.ts";

const redis = observer();
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

  test("the keyPrefix of the client stands before the key, also for the release", async () => {
    const client = connect(sharedRedisPort(), { keyPrefix: "shop:" });
    await untilReady(client);
    const [lock, user] = [openLock({ store: new RedisStore(client) }), freshUser()];
    const lease = await leaseOf(lock, user);
    expect(await redis.ownerOf(`shop:lock:submit:${user}`)).toBe(lease.ownerId);
    expect(await redis.exists(`lock:submit:${user}`)).toBe(false);
    expect(await lease.release()).toBe("released");
    expect(await redis.exists(`shop:lock:submit:${user}`)).toBe(false);
  });

  // A node-redis client is connected by the application alone.
  test.skipIf(isNodeRedis(name))(
    "a lazy client is connected by its first lock, and acquires as soon as it is up",
    async () => {
      const client = connect(sharedRedisPort(), { lazyConnect: true });
      const store = new RedisStore(client);
      expect(statusOf(client)).toBe("wait");
      const lock = openLock({ store });
      expect(statusOf(client)).not.toBe("wait");
      expect(await (await leaseOf(lock, freshUser())).release()).toBe("released");
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

  test("the second connection goes to the database that was selected at run time", async () => {
    const proxy = await forTest(startProxy(sharedRedisPort()));
    const client = connect(proxy.port);
    await client.select(3);
    const [lock, user] = [openLock({ store: new RedisStore(client) }), freshUser()];
    const lost = proxy.loseReplyOnce(([name]) => name === "eval");
    const { lease, confirmed } = acquired(await lock.acquire(user));
    await lost;
    expect(confirmed).toBe(true);
    expect(proxy.connections).toBe(2);
    // In any other database the confirm would have found the key free, and taken a second one.
    expect(await redis.exists(lease.key)).toBe(false);
    expect(await lease.release()).toBe("released");
    const inThree = connect(sharedRedisPort(), { db: 3 });
    await until(async () => (await inThree.exists(lease.key)) === 0, { what: "no key to be left" });
    await closeLocks();
  });

  test("the application's own client is left open, and as it was", async () => {
    const client = connect(sharedRedisPort());
    await untilReady(client);
    const events = ["ready", "close", "end", "error", "-node"];
    const before = events.map((event) => client.listenerCount(event));
    const lock = openLock({ store: new RedisStore(client) });
    await lock.withLock(freshUser(), {}, () => {});
    await lock.close();
    expect(statusOf(client)).toBe("ready");
    expect(await client.ping()).toBe("PONG");
    expect(events.map((event) => client.listenerCount(event))).toEqual(before);
  });
});
