import { afterAll, afterEach, beforeAll, describe } from "vitest";
import { type LockStore, RedisStore, SubmitLock } from "../../src/index.ts";
import { closeClients, everyClusterClient, everyRedisClient } from "../support/clients.ts";
import { freshUser } from "../support/ids.ts";
import { closeLocks } from "../support/locks.ts";
import { type RedisCluster, startCluster } from "../support/redis-cluster.ts";
import { sharedRedisPort } from "../support/redis-server.ts";

/** Runs one suite on the Redis store, with every client that it promises to take. */
export function onEveryRedisStore(suite: (store: () => LockStore) => void): void {
  let cluster: RedisCluster;
  beforeAll(async () => {
    cluster = await startCluster();
  });
  afterAll(() => cluster.stop());
  afterEach(closeLocks);

  const clients: { name: string; connect(): ConstructorParameters<typeof RedisStore>[0] }[] = [
    ...everyRedisClient.map(({ name, connect }) => ({
      name,
      connect: () => connect(sharedRedisPort()),
    })),
    ...everyClusterClient.map(({ name, connect }) => ({
      name,
      connect: () => connect(cluster.ports),
    })),
  ];

  describe.each(clients)("RedisStore on $name", ({ connect }) => {
    let store: LockStore;
    // One store for all of its tests, as in an application; each test has keys of its own.
    beforeAll(async () => {
      store = new RedisStore(connect());
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
