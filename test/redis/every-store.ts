import { afterAll, afterEach, beforeAll, describe } from "vitest";
import { type LockStore, MemoryStore, RedisStore, SubmitLock } from "../../src/index.ts";
import { closeClients, cluster5, cluster6, redisClients } from "../support/clients.ts";
import { freshUser } from "../support/ids.ts";
import { closeLocks } from "../support/locks.ts";
import { type RedisCluster, startCluster } from "../support/redis-cluster.ts";
import { sharedRedisPort } from "../support/redis-server.ts";

/** Runs one suite on every store, and the Redis store on every client that it promises to take. */
export function onEveryStore(suite: (store: () => LockStore) => void): void {
  let cluster: RedisCluster;
  beforeAll(async () => {
    cluster = await startCluster();
  });
  afterAll(() => cluster.stop());
  afterEach(closeLocks);

  const stores: { name: string; open(): LockStore }[] = [
    ...redisClients.map(({ name, connect }) => ({
      name: `RedisStore on ${name}`,
      open: () => new RedisStore(connect(sharedRedisPort())),
    })),
    ...[cluster6, cluster5].map(({ name, connect }) => ({
      name: `RedisStore on ${name}`,
      open: () => new RedisStore(connect(cluster.ports)),
    })),
    { name: "MemoryStore", open: () => new MemoryStore() },
  ];

  describe.each(stores)("$name", ({ open }) => {
    let store: LockStore;
    // One store for all of its tests, as in an application; each test has keys of its own.
    beforeAll(async () => {
      store = open();
      await isUp(store);
    });
    afterAll(closeClients);
    suite(() => store);
  });
}

/** A store writes nothing before its connection is up, and says so. */
async function isUp(store: LockStore): Promise<void> {
  await new SubmitLock({ store }).withLock(freshUser(), { waitMs: 10_000 }, () => {});
}
