import { setTimeout as sleep } from "node:timers/promises";
import type { Cluster } from "ioredis";
import { afterEach, describe, expect, inject, test, vi } from "vitest";
import { RedisStore } from "../../src/index.ts";
import { slotOf } from "../../src/stores/redis/clients/slots.ts";
import { startSentinels } from "../lab/topologies/sentinel.ts";
import {
  closeClients,
  clusterClients,
  ioredisClients,
  statusOf,
  untilReady,
} from "../support/clients.ts";
import { command } from "../support/command.ts";
import { freshUser } from "../support/ids.ts";
import { closeLocks, openLock } from "../support/locks.ts";
import { startProxy } from "../support/proxy.ts";
import { startCluster } from "../support/redis-cluster.ts";
import { forTest, type RedisServer } from "../support/redis-server.ts";
import { until } from "../support/until.ts";

afterEach(() => {
  void closeLocks();
  closeClients();
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
    for (const each of [user, userOn(0)]) await lock.withLock(each, () => {});

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

describe.each(ioredisClients)("rule 9: a failover by Sentinels, with $name", ({ connect }) => {
  test("a master that is paused together with the first Sentinel is left for the one that was elected", async () => {
    const trio = await forTest(startSentinels(inject("redisServerBinary")));
    const { target } = trio;
    if (target.kind !== "sentinel") throw new Error("no Sentinels");
    const proxy = await forTest(startProxy(target.ports[0] as number));
    const client = connect(0, {
      name: target.name,
      sentinels: [proxy.port, ...target.ports].map((port) => ({ host: "127.0.0.1", port })),
    });
    await untilReady(client);
    const lock = openLock({ store: new RedisStore(client), ttlMs: 2_000, acquireTimeoutMs: 600 });
    await lock.check();

    const master = await trio.masterOf("");
    proxy.swallowRequests(true);
    master.pause();
    await lock.withLock(freshUser(), { waitMs: 30_000 }, () => {});
    expect(await trio.masterOf("")).not.toBe(master);
  });
});
