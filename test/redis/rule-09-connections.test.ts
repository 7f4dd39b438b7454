// @slow: begins first.

import { setTimeout as sleep } from "node:timers/promises";
import type { Cluster, Redis } from "ioredis";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { RedisStore } from "../../src/index.ts";
import { slotOf } from "../../src/stores/redis/clients/slots.ts";
import { asking } from "../support/asking.ts";
import {
  type AnyCluster,
  closeClient,
  clusterClients,
  redisClients,
  statusOf,
  untilReady,
} from "../support/clients.ts";
import { command } from "../support/command.ts";
import { freshUser } from "../support/ids.ts";
import { acquired, causeOf, commandOf, leaseOf, openLock } from "../support/locks.ts";
import { observer } from "../support/observer.ts";
import { startProxy } from "../support/proxy.ts";
import { type RedisCluster, startCluster } from "../support/redis-cluster.ts";
import { forTest, type RedisServer, sharedRedisPort } from "../support/redis-server.ts";
import { startReplicated } from "../support/replicated-redis.ts";
import { scriptCallsOf } from "../support/script-calls.ts";
import { answer, foundBy, submissionOf, submit } from "../support/submissions.ts";
import { until } from "../support/until.ts";
import { closeFixtures, type Fixture, isAcquire, openFixture, patient } from "./fixture.ts";

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
    const { proxy, lock, client, store } = await openFixture({ ...quick, connect });
    const held = proxy.holdRequestOnce(isAcquire);
    await lock.withLock(freshUser(), { waitMs: 10_000 }, () => {});
    await held;
    proxy.releaseHeld();
    // For it a second connection that a busy machine answers late is not silent, too.
    const calm = openLock({ store, ...patient });
    const sent = scriptCallsOf(client);
    // The first answers again; it may be a master that has not heard of the election of another.
    for (let i = 0; i < 10; i++) await calm.withLock(freshUser(), { waitMs: 10_000 }, () => {});
    expect(sent.filter(({ argv }) => isAcquire(argv))).toEqual([]);
  });

  test("an attempt that begins while Redis is away acquires when it comes back within the budget", async () => {
    const slow = { ttlMs: 40_000, acquireTimeoutMs: 15_000, commandTimeoutMs: 5_000 };
    const fixture = await openFixture({ ...slow, connect });
    const { lock, proxy } = fixture;
    await goAway(fixture);
    const attempt = lock.acquire(freshUser());
    await sleep(200);
    await proxy.refuse(false);
    const { lease, confirmed } = acquired(await attempt);
    expect(confirmed).toBe(false);
    await lease.release();
  });

  test("nothing is queued for a Redis that is away, and it is used when it is back", async () => {
    const fixture = await openFixture({ ...quick, connect });
    const { lock, proxy, redis } = fixture;
    const user = freshUser();
    await goAway(fixture);
    const from = performance.now();
    const cause = causeOf(await lock.acquire(user));
    expect(cause).toMatchObject({ code: "SUBMIT_LOCK_UNAVAILABLE" });
    expect(performance.now() - from).toBeLessThan(10_000);
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

  test("a path that swallows everything is left for a new connection", async () => {
    const { lock, proxy } = await openFixture({ ...quick, connect });
    await lock.withLock(freshUser(), { waitMs: 10_000 }, () => {});
    proxy.swallowRequests(true);
    expect((await lock.acquire(freshUser())).outcome).toBe("unavailable");
    // The two connections of now stay silent for ever, and any new one would do.
    proxy.swallowRequests(false);
    await lock.withLock(freshUser(), { waitMs: 20_000 }, () => {});
  });
});

// The applications' clients have no time-out of their own: what recovers is the second connection.

describe.each(clusterClients)("rule 9: a failover of a Cluster, with $name", ({ connect }) => {
  test("a slot that another node has taken from a silent one is found, although the other nodes answer", async () => {
    const cluster = await forTest(startCluster(["--cluster-require-full-coverage", "no"]));
    const client = await untilReady(connect(cluster.ports));
    const lock = openLock({ store: new RedisStore(client), ttlMs: 2_000, acquireTimeoutMs: 600 });
    const masterOf = (user: string) => Math.floor((slotOf(`lock:submit:${user}`) * 3) / 16_384);
    const userOn = (master: number): string => {
      for (;;) {
        const user = freshUser();
        if (masterOf(user) === master) return user;
      }
    };
    const user = userOn(2);
    for (const each of [user, userOn(0)]) await lock.withLock(each, { waitMs: 10_000 }, () => {});

    // The second connection comes up, and has learned of the slots as they are.
    const from = performance.now();
    const duplicates = vi.spyOn(client as Cluster, "duplicate");
    const silent = cluster.nodes[2] as RedisServer;
    silent.pause();
    expect((await lock.acquire(user)).outcome).toBe("unavailable");
    silent.resume();
    const second = duplicates.mock.results[0]?.value as Cluster;
    await until(() => statusOf(second) === "ready", { what: "the second connection" });
    // Its connection to this node is up, too: one in its handshake would look around by itself.
    await until(
      () =>
        second.get(`lock:submit:${user}`).then(
          () => true,
          () => false,
        ),
      {
        what: "an answer of the node on it",
      },
    );

    silent.pause();
    const [heir = 0, other = 0] = cluster.ports;
    let isOver = false;
    const traffic = (async () => {
      for (; !isOver; await sleep(10)) await lock.acquire(userOn(1));
    })();
    try {
      expect((await lock.acquire(user)).outcome).toBe("unavailable");
      const id = String(await command(heir, "CLUSTER", "MYID"));
      const slot = slotOf(`lock:submit:${user}`);
      for (const port of [other, heir]) {
        await command(port, "CLUSTER", "SETSLOT", slot, "NODE", id);
      }
      await lock.withLock(user, { waitMs: 20_000 }, () => {});
    } finally {
      isOver = true;
      await traffic;
    }
    // By the one that there was: it is replaced after 5 s of silence, which only a busy machine takes.
    const mostReplaced = Math.floor((performance.now() - from) / 5_000);
    expect(duplicates.mock.calls.length).toBeLessThanOrEqual(1 + mostReplaced);
  });
});

const times = { ttlMs: 20_000, acquireTimeoutMs: 4_000, commandTimeoutMs: 1_000 };

describe.each(redisClients)("rule 9: a connection to a replica, with $name", ({ connect }) => {
  async function open(storeOptions = {}) {
    const site = await forTest(startReplicated());
    const proxy = await forTest(startProxy(site.master.port));
    const client = await untilReady(connect(proxy.port));
    const store = new RedisStore(client, storeOptions);
    const lock = openLock({ store, ...times });
    await lock.withLock(freshUser(), { waitMs: 10_000 }, () => {});
    const [next] = site.replicas as [(typeof site.replicas)[number]];
    /** Behind one address: what is open stays connected to the old master. */
    const failOver = async (to = next.port) => {
      await site.inStep();
      await command(next.port, "REPLICAOF", "NO", "ONE");
      await command(site.master.port, "REPLICAOF", "127.0.0.1", next.port);
      const isInStep = async () =>
        String(await command(site.master.port, "INFO", "replication")).includes(
          "master_link_status:up",
        );
      await until(isInStep, { what: "the old master to follow the new one", boundMs: 30_000 });
      proxy.leadTo(to);
      return next.port;
    };
    return { lock, store, proxy, site, failOver, heir: observer(next.port) };
  }

  test.each([
    ["", {}],
    [", with ackReplicas", { ackReplicas: 1 }],
  ])("is left for one that leads to the master%s", async (_name, storeOptions) => {
    const { lock, failOver, heir, proxy } = await open(storeOptions);
    const [user, other] = [freshUser(), freshUser()];
    const held = await leaseOf(lock, user);
    const order = await submissionOf(lock, other);
    const connections = proxy.connections;
    await failOver();
    const { lease } = acquired(await lock.acquire(freshUser()));
    expect(await heir.ownerOf(lease.key)).toBe(lease.ownerId);
    expect(proxy.connections).toBe(2 * connections);
    expect(await held.release()).toBe("released");
    expect(await heir.exists(held.key)).toBe(false);
    expect(await order.complete(answer)).toBe("recorded");
    expect(foundBy(await submit(lock, other))).toBe("order 7");
    expect(await lock.inspect(user)).toMatchObject({ state: "free" });
  });

  test("is left as soon as its master lacks the replicas, which follow another one already", async () => {
    const { lock, proxy, site, heir } = await open();
    const [next] = site.replicas as [(typeof site.replicas)[number]];
    await site.inStep();
    await command(next.port, "REPLICAOF", "NO", "ONE");
    await site.redis.send("CONFIG", "SET", "min-replicas-to-write", "1");
    const user = freshUser();
    const refused = causeOf(await lock.acquire(user));
    expect((refused.cause as Error).message).toMatch(/^NOREPLICAS\b/);
    proxy.leadTo(next.port);
    await until(async () => (await lock.acquire(user)).outcome === "acquired", {
      what: "the connection to the other master",
    });
    expect(await heir.exists(lock.keyFor(user))).toBe(true);
  });

  test("is left also where the second one was opened before the address led elsewhere", async () => {
    const { lock, failOver, proxy, site } = await open();
    const target = await failOver(site.master.port);
    expect((await lock.acquire(freshUser())).outcome).toBe("unavailable");
    proxy.leadTo(target);
    await until(async () => (await lock.acquire(freshUser())).outcome === "acquired", {
      what: "another second connection",
    });
  });

  test.each([
    ["READONLY", "yes"],
    ["MASTERDOWN", "no"],
  ])(
    "makes the lock unavailable by %s, and serves once it leads to a master",
    async (error, stale) => {
      const { lock, store, site, proxy } = await open();
      const { master, redis } = site;
      await redis.send("CONFIG", "SET", "replica-serve-stale-data", stale);
      await command(master.port, "REPLICAOF", "127.0.0.1", 1);
      const brief = openLock({ store, ttlMs: 2_000, acquireTimeoutMs: 300 });
      const user = freshUser();
      for (let attempt = 0; attempt < 5; attempt++) {
        const cause = causeOf(await brief.acquire(user));
        expect(cause.message).toContain("the last request was not executed: no master took it");
        expect((cause.cause as Error).message).toMatch(new RegExp(`^${error}\\b`));
      }
      // One more, and not one for each refusal.
      expect(proxy.connections).toBe(2);
      await command(master.port, "REPLICAOF", "NO", "ONE");
      expect(await redis.exists(lock.keyFor(user))).toBe(false);
      const { confirmed, lease } = acquired(await lock.acquire(user));
      expect(confirmed).toBe(false);
      expect(await lease.release()).toBe("released");
    },
  );
});

describe.each(clusterClients)("rule 9: one silent node of a Cluster, with $name", ({ connect }) => {
  let cluster: RedisCluster;
  let client: AnyCluster;
  beforeAll(async () => {
    cluster = await startCluster(["--cluster-node-timeout", "60000"]);
  });
  afterAll(() => cluster.stop());
  beforeEach(async () => {
    client = await untilReady(connect(cluster.ports));
  });
  afterEach(() => cluster.nodes[2]?.resume());

  /** Users whose keys lie on this master, or on any of the others. */
  async function usersOn(index: number, count: number): Promise<[here: string[], there: string[]]> {
    const users: [string[], string[]] = [[], []];
    while (users[0].length < count || users[1].length < count) {
      const user = freshUser();
      const slot = await command(cluster.ports[0] as number, "CLUSTER", "KEYSLOT", keyOf(user));
      // The masters share the slots evenly, in their order.
      const here = Math.floor((Number(slot) * 3) / 16_384) === index;
      users[here ? 0 : 1].push(user);
    }
    return users;
  }
  const keyOf = (user: string) => `lock:submit:${user}`;

  test("the users of the other nodes go on, without another connection", async () => {
    // Time for a busy machine: the other nodes do not give up the silent one meanwhile.
    const times = { ttlMs: 8_000, acquireTimeoutMs: 2_000, commandTimeoutMs: 1_000 };
    const lock = openLock({ store: new RedisStore(client), ...times });
    const [silent, others] = await usersOn(2, 2);
    (cluster.nodes[2] as RedisServer).pause();
    for (const [i, user] of silent.slice(0, 2).entries()) {
      expect((await lock.acquire(user)).outcome).toBe("unavailable");
      const { confirmed, lease } = acquired(await lock.acquire(others[i] as string));
      expect(confirmed).toBe(false);
      expect(await lease.release()).toBe("released");
    }
  });

  test("what the node had not answered is unknown at once when it dies, although others have answered", async () => {
    const store = new RedisStore(client);
    const asked = asking(store);
    const detach = store.attach(() => {});
    const [[here], [there]] = await usersOn(2, 1);
    const [dying, other] = [here, there].map((user) => commandOf({ key: keyOf(user as string) }));
    if (dying === undefined || other === undefined) throw new Error("no users");
    // The client opens its connection to a node with the first command for it.
    for (const one of [dying, other]) await asked.acquire(one).reply;
    const node = cluster.nodes[2] as RedisServer;
    node.pause();
    const unanswered = asked.extend(dying);
    await asked.extend(other).reply;
    await node.kill();
    expect(await unanswered.reply).toMatchObject({ kind: "unknown" });
    await detach();
  });
});
