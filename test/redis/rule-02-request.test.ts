import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { RedisStore } from "../../src/index.ts";
import { type IoredisClient, IoredisPort } from "../../src/stores/redis/clients/ioredis.ts";
import { openSecond } from "../../src/stores/redis/clients/second-ioredis.ts";
import { slotOf } from "../../src/stores/redis/clients/slots.ts";
import { Connection } from "../../src/stores/redis/connection.ts";
import { asking } from "../support/asking.ts";
import { record } from "../support/channels.ts";
import {
  type AnyCluster,
  clusterClients,
  ioredisClusters,
  isNodeRedis,
  redisClients,
  untilReady,
} from "../support/clients.ts";
import { freshUser } from "../support/ids.ts";
import { commandOf, leaseOf, openLock } from "../support/locks.ts";
import { type KeyObserver, observer } from "../support/observer.ts";
import { startCluster } from "../support/redis-cluster.ts";
import { type RedisServer, startRedis } from "../support/redis-server.ts";
import { answer, submissionOf } from "../support/submissions.ts";
import { until } from "../support/until.ts";
import {
  closeFixtures,
  executed,
  isAcquire,
  openFixture,
  patient,
  untilUsable,
} from "./fixture.ts";

const cluster = await startCluster(["--cluster-node-timeout", "20000"]);
afterAll(() => cluster.stop());
afterEach(() => {
  for (const node of cluster.nodes) node.resume();
  closeFixtures();
});

describe("rule 2: a request is in flight until its own answer", () => {
  test("each copy carries a deadline acquireTimeoutMs ahead, and a window of twice that", async () => {
    const { lock, proxy } = await openFixture();
    const from = Date.now();
    const lease = await leaseOf(lock, freshUser());
    const [, , , , deadline, window, adopt, life] = proxy.commands.find(isAcquire) as string[];
    expect(Number(deadline) - from).toBeGreaterThanOrEqual(1_500 - 2);
    expect(Number(deadline) - Date.now()).toBeLessThanOrEqual(1_500 + 2);
    expect([window, adopt, life]).toEqual(["3000", "60000", "4000"]);
    await lease.release();
  });

  test("a copy that comes after its deadline is refused by Redis, and writes nothing", async () => {
    const { store, proxy, redis } = await openFixture();
    const times = { ttlMs: 1_000, maxHoldMs: 1_000, acquireTimeoutMs: 50, commandTimeoutMs: 20 };
    const late = commandOf({ times });
    proxy.holdRequests();
    const copy = asking(store).acquire(late);
    await until(async () => copy.deadlineMs !== undefined && Date.now() > copy.deadlineMs + 5, {
      what: "the deadline to be over",
    });
    proxy.releaseHeld();
    expect(await copy.reply).toMatchObject({ kind: "outOfWindow" });
    expect(await redis.exists(late.key)).toBe(false);
  });

  describe.each(redisClients)("with $name", ({ name, connect }) => {
    const sendsAgain = !isNodeRedis(name);

    test("an answer that comes after a reconnect is not listened to", async () => {
      const { store, client, proxy } = await openFixture({ connect });
      const command = commandOf();
      const lost = proxy.loseReplyOnce(isAcquire, { resetAfterMs: 0 });
      const first = asking(store).acquire(command);
      await lost;
      // The client re-sends in silence; the store has long said that it does not know.
      expect(await first.reply).toMatchObject({ kind: "unknown" });
      const copies = () => proxy.commands.filter(isAcquire).length;
      if (sendsAgain) await until(() => copies() === 2, { what: "the re-send" });
      await untilUsable(client);
      if (!sendsAgain) expect(copies()).toBe(1);
      expect(await asking(store).acquire(command).reply).toMatchObject({ kind: "mine" });
      await asking(store).release(command).reply;
    });
  });
});

/** A node's connection comes back by itself, and the Cluster client tells nothing of it. */
const clusterNodeRetryStrategy = () => 20;

const which = [
  ["the application's own client", (client: AnyCluster) => client],
  [
    "the second connection",
    (client: AnyCluster) => openSecond(client as IoredisClient, 0) as AnyCluster,
  ],
] as const;

describe.each(ioredisClusters)(
  "rule 2: a node that comes back by itself, with $name",
  ({ connect }) => {
    test.each(which)("was lost, and a call in flight is closed, on %s", async (_name, choose) => {
      const client = await untilReady(connect(cluster.ports, { clusterNodeRetryStrategy }));
      const chosen = await untilReady(choose(client));
      const connection = new Connection(new IoredisPort(chosen));
      connection.watch({ ready() {}, failed() {} });
      const key = `lock:submit:${freshUser()}`;
      const told: string[] = [];
      const count = "return redis.call('INCR', KEYS[1])";
      const send = (on: string) =>
        connection.send(on, count, { keys: [key], args: [] }, ({ kind }) => told.push(kind));
      // The client connects to a node with its first command for it.
      send("");
      await until(() => told.length === 1, { what: "the first answer" });
      const port = Number(chosen.slots[slotOf(key)]?.[0]?.split(":").at(-1));
      const server = cluster.nodes.find((node) => node.port === port) as RedisServer;
      const node = chosen.nodes("master").find(({ options }) => options.port === port);
      server.pause();
      send("");
      await sleep(0);
      const wasLost = new Promise((resolve) => node?.once("close", resolve));
      node?.stream.destroy();
      await wasLost;
      server.resume();
      await until(() => told.length === 2, { what: "the second answer" });
      expect(told).toEqual(["value", "closed"]);
      connection.unwatch();
      if (chosen !== client) chosen.disconnect();
    });

    test("no listener is left on any node", async () => {
      const client = await untilReady(connect(cluster.ports, { clusterNodeRetryStrategy }));
      await client.set(freshUser(), 1, "PX", 1_000);
      const listeners = () => client.nodes().map((node) => node.listenerCount("close"));
      await Promise.all(client.nodes().map((node) => node.ping()));
      const before = [listeners(), client.listenerCount("+node")];
      const lock = openLock({ store: new RedisStore(client) });
      await (await leaseOf(lock, freshUser())).release();
      expect(listeners()).not.toEqual(before[0]);
      await lock.close();
      expect([listeners(), client.listenerCount("+node")]).toEqual(before);
    });
  },
);

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
