import { afterAll, afterEach, beforeAll, describe } from "vitest";
import { type LockStore, RedisStore, SubmitLock } from "../../src/index.ts";
import { type ClusterKind, closeClients, type RedisKind } from "../support/clients.ts";
import { freshUser } from "../support/ids.ts";
import { closeLocks } from "../support/locks.ts";
import { type RedisCluster, startCluster } from "../support/redis-cluster.ts";
import { sharedRedisPort } from "../support/redis-server.ts";

/** Runs suites on the Redis store, with each of these clients. */
export function onRedisStores(
  ofServer: readonly RedisKind[],
  ofCluster: readonly ClusterKind[],
  ...suites: ((store: () => LockStore) => void)[]
): void {
  let cluster: RedisCluster;
  beforeAll(async () => {
    cluster = await startCluster();
  });
  afterAll(() => cluster.stop());
  afterEach(closeLocks);

  const clients = [
    ...ofServer.map(({ name, connect }) => ({ name, connect: () => connect(sharedRedisPort()) })),
    ...ofCluster.map(({ name, connect }) => ({ name, connect: () => connect(cluster.ports) })),
  ];

  describe.each(clients)("RedisStore on $name", ({ connect }) => {
    let store: LockStore;
    // One store for all of its tests, as in an application; each test has keys of its own.
    beforeAll(async () => {
      store = new RedisStore(connect());
      // A store writes nothing before its connection is up, and says so.
      await new SubmitLock({ store }).withLock(freshUser(), { waitMs: 10_000 }, () => {});
    });
    afterAll(closeClients);
    for (const suite of suites) suite(() => store);
  });
}
