import { afterAll, afterEach, beforeAll, describe, inject } from "vitest";
import { type LockStore, RedisStore, SubmitLock } from "../../src/index.ts";
import { type ClusterKind, closeClients, type RedisKind } from "../support/clients.ts";
import { freshUser } from "../support/ids.ts";
import { closeLocks } from "../support/locks.ts";
import { startMasters } from "../support/masters.ts";
import { type RedisCluster, startCluster } from "../support/redis-cluster.ts";
import { type RedisServer, sharedRedisPort } from "../support/redis-server.ts";

/** Runs suites on the Redis store, with each of these clients. */
export function onRedisStores(
  ofServer: readonly RedisKind[],
  ofCluster: readonly ClusterKind[],
  ...suites: ((store: () => LockStore) => void)[]
): void {
  let cluster: RedisCluster;
  let shard: RedisServer;
  beforeAll(async () => {
    cluster = await startCluster();
    [shard] = (await startMasters(inject("redisServerBinary"), 1, [])) as [RedisServer];
  });
  afterAll(() => Promise.all([cluster.stop(), shard.stop()]));
  afterEach(closeLocks);

  const clients = [
    ...ofServer.map(({ name, connect }) => ({ name, connect: () => connect(sharedRedisPort()) })),
    ...ofCluster.map(({ name, connect }) => ({ name, connect: () => connect(cluster.ports) })),
    // Rule 24: cluster mode behind the address of one server.
    ...ofServer.slice(0, 1).map(({ name, connect }) => ({
      name: `${name}, before one shard in cluster mode`,
      connect: () => connect(shard.port),
    })),
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
