import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { RedisStore } from "../../src/index.ts";
import { record } from "../support/channels.ts";
import {
  closeClients,
  clusterClients,
  isNodeRedis,
  redisClients,
  untilReady,
} from "../support/clients.ts";
import { freshUser } from "../support/ids.ts";
import { leaseOf, openLock } from "../support/locks.ts";
import { type KeyObserver, observer } from "../support/observer.ts";
import { type RedisCluster, startCluster } from "../support/redis-cluster.ts";
import { type RedisServer, startRedis } from "../support/redis-server.ts";
import { answer, submissionOf } from "../support/submissions.ts";
import { until } from "../support/until.ts";
import { closeFixtures, executed, isAcquire, openFixture, patient } from "./fixture.ts";

afterEach(closeFixtures);

const nodeAt = (port: number) => {
  const redis = observer(port);
  return {
    redis,
    texts: () => executed(redis, "eval"),
    digests: () => executed(redis, "evalsha"),
  };
};

describe.each(redisClients)("rule 2: scripts by their digest, with $name", ({ name, connect }) => {
  let server: RedisServer;
  let redis: KeyObserver;
  let texts: () => Promise<number>;
  let digests: () => Promise<number>;
  beforeAll(async () => {
    server = await startRedis();
    ({ redis, texts, digests } = nodeAt(server.port));
  });
  afterAll(() => server.stop());
  beforeEach(() => redis.send("CONFIG", "RESETSTAT"));

  const open = () => openFixture({ ...patient, port: server.port, connect });

  test("travel as text once a connection, and then as a digest", async () => {
    const { lock } = await open();
    for (let i = 0; i < 10; i++) await (await leaseOf(lock, freshUser())).release();
    expect(await texts()).toBe(2);
    expect(await digests()).toBe(18);
    for (let i = 0; i < 5; i++) await (await submissionOf(lock, freshUser())).complete(answer);
    expect(await texts()).toBe(4);
    expect(await digests()).toBe(18 + 8);
  });

  test("a lone pair sends at most 500 bytes", async () => {
    const { lock } = await open();
    await (await leaseOf(lock, freshUser())).release();
    const received = async () =>
      Number(/total_net_input_bytes:(\d+)/.exec(String(await redis.send("INFO", "stats")))?.[1]);
    // What it costs to look.
    const from = await received();
    const looked = await received();
    const pairs = 20;
    for (let i = 0; i < pairs; i++) await (await leaseOf(lock, freshUser())).release();
    const bytes = (await received()) - looked - (looked - from);
    expect(bytes / pairs).toBeLessThanOrEqual(500);
  });

  test("are sent as text again, in the same copy, when the server has forgotten them", async () => {
    const { lock, redis } = await open();
    const user = freshUser();
    await (await leaseOf(lock, user)).release();
    await redis.send("SCRIPT", "FLUSH");
    const acquire = record("submit-lock:acquire", `lock:submit:${user}`);
    const lease = await leaseOf(lock, user);
    expect(acquire).toMatchObject([{ outcome: "acquired", copies: 1, confirmed: false }]);
    await redis.send("SCRIPT", "FLUSH");
    expect(await lease.release()).toBe("released");
    expect(await redis.exists(lease.key)).toBe(false);
  });

  test("so do the requests of a whole turn, each answered by its own entry", async () => {
    const { lock, redis } = await open();
    await (await leaseOf(lock, freshUser())).release();
    const heldUser = freshUser();
    await leaseOf(lock, heldUser);
    await redis.send("SCRIPT", "FLUSH");
    const users = [heldUser, ...Array.from({ length: 40 }, freshUser)];
    const attempts = await Promise.all(users.map((user) => lock.acquire(user)));
    expect(attempts.map(({ outcome }) => outcome)).toEqual([
      "contended",
      ...Array.from({ length: 40 }, () => "acquired"),
    ]);
  });

  test("a user who may call them by their text alone is served by it, and is refused once", async () => {
    const acl = freshUser();
    await redis.send("ACL", "SETUSER", acl, "on", ">secret", "~*", "+@all", "-evalsha");
    const client = connect(server.port, { username: acl, password: "secret" });
    await untilReady(client);
    const lock = openLock({ store: new RedisStore(client), ...patient });
    const user = freshUser();
    const acquire = record("submit-lock:acquire", `lock:submit:${user}`);
    for (let i = 0; i < 3; i++)
      expect(await (await leaseOf(lock, user)).release()).toBe("released");
    expect(acquire).toHaveLength(3);
    expect(acquire).toEqual(
      acquire.map(() => expect.objectContaining({ outcome: "acquired", copies: 1 })),
    );
    expect(await texts()).toBe(6);
    expect(String(await redis.send("INFO", "commandstats"))).toMatch(
      /cmdstat_evalsha:calls=0,.*rejected_calls=1\b/,
    );
  });

  // node-redis writes nothing again.
  test.skipIf(isNodeRedis(name))(
    "what its client writes again on a new connection is not sent as text as well",
    async () => {
      const { lock, proxy, redis } = await open();
      const user = freshUser();
      await (await leaseOf(lock, user)).release();
      const held = proxy.holdRequestOnce(isAcquire);
      const attempt = lock.acquire(user);
      await held;
      await redis.send("SCRIPT", "FLUSH");
      // The client writes the digest again; its caller has been told of the reset, and confirms.
      proxy.resetAll();
      expect((await attempt).outcome).toBe("acquired");
      await until(() => proxy.commands.filter(isAcquire).length >= 4, { what: "both copies" });
      expect(await redis.exists(`lock:submit:${user}`)).toBe(true);
    },
  );
});

describe.each(clusterClients)(
  "rule 2: scripts by their digest, with $name",
  ({ name, connect }) => {
    let cluster: RedisCluster;
    beforeAll(async () => {
      cluster = await startCluster();
    });
    afterAll(() => cluster.stop());
    afterEach(closeClients);

    test("each node is sent them when it does not have them", async () => {
      const client = connect(cluster.ports);
      await untilReady(client);
      const lock = openLock({ store: new RedisStore(client), ...patient });
      const nodes = cluster.ports.map(nodeAt);
      const users = Array.from({ length: 60 }, freshUser);
      const pairs = async () => {
        const leases = await Promise.all(users.map((user) => leaseOf(lock, user)));
        const released = await Promise.all(leases.map((lease) => lease.release()));
        expect(new Set(released)).toEqual(new Set(["released"]));
      };
      // Rule 23: the first asks the nodes, and each request goes alone. The second shares calls.
      for (let turn = 0; turn < 2; turn++) await pairs();
      const reset = () => Promise.all(nodes.map(({ redis }) => redis.send("CONFIG", "RESETSTAT")));
      await reset();
      await pairs();
      for (const { texts, digests } of nodes) {
        expect(await texts()).toBe(0);
        expect(await digests()).toBeGreaterThan(0);
      }
      await reset();
      await nodes[1]?.redis.send("SCRIPT", "FLUSH");
      await pairs();
      const sent = await Promise.all(nodes.map(({ texts }) => texts()));
      expect(sent.map((count) => count > 0)).toEqual([false, true, false]);
    });

    // node-redis does so by itself.
    test.skipIf(isNodeRedis(name))(
      "what one turn writes to a node leaves in one piece",
      async () => {
        const client = connect(cluster.ports);
        await untilReady(client);
        const lock = openLock({ store: new RedisStore(client), ...patient });
        const users = Array.from({ length: 60 }, freshUser);
        const leases = await Promise.all(users.map((user) => leaseOf(lock, user)));
        const writes = client.nodes("master").map(({ stream }) => {
          let count = 0;
          for (const name of ["_write", "_writev"] as const) {
            const write = Reflect.get(stream, name) as (...args: unknown[]) => void;
            Reflect.set(stream, name, (...args: unknown[]) => {
              count++;
              write.apply(stream, args);
            });
          }
          return () => count;
        });
        await Promise.all(leases.map((lease) => lease.release()));
        expect(writes.map((count) => count())).toEqual([1, 1, 1]);
      },
    );
  },
);
