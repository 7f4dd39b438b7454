import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, afterEach, describe, expect, onTestFinished, test } from "vitest";
import { RedisStore } from "../../src/index.ts";
import { type IoredisClient, IoredisPort } from "../../src/stores/redis/clients/ioredis.ts";
import { openSecond } from "../../src/stores/redis/clients/open-ioredis.ts";
import { slotOf } from "../../src/stores/redis/clients/slots.ts";
import { Connection } from "../../src/stores/redis/connection.ts";
import { type AnyCluster, closeClients, ioredisClusters, untilReady } from "../support/clients.ts";
import { freshUser } from "../support/ids.ts";
import { closeLocks, leaseOf, openLock } from "../support/locks.ts";
import { startCluster } from "../support/redis-cluster.ts";
import type { RedisServer } from "../support/redis-server.ts";
import { beginMove, userOnFirst } from "../support/slot-move.ts";
import { until } from "../support/until.ts";

const cluster = await startCluster(["--cluster-node-timeout", "20000"]);
afterAll(() => cluster.stop());
afterEach(async () => {
  for (const node of cluster.nodes) node.resume();
  await closeLocks();
  closeClients();
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
      connection.watch({ ready() {}, refused() {} });
      const key = `lock:submit:${freshUser()}`;
      const told: string[] = [];
      const count = "return redis.call('INCR', KEYS[1])";
      const send = (on: string) =>
        connection.send(on, count, [key], [], ({ kind }) => told.push(kind));
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

    test("closes a call that the client repeats, although the node has answered a later one", async () => {
      // Not while the test lasts: ioredis would leave the rejection of an ASKING unhandled.
      const client = await untilReady(connect(cluster.ports, { retryDelayOnTryAgain: 60_000 }));
      const connection = new Connection(new IoredisPort(client));
      connection.watch({ ready() {}, refused() {} });
      const [port] = cluster.ports as [number];
      const node = `127.0.0.1:${port}`;
      const told: string[] = [];
      const send = (name: string, keys: string[]) =>
        connection.send(node, "return 1", keys, [], ({ kind }) => told.push(`${name} ${kind}`));
      const key = userOnFirst(cluster, (one) => one);
      const move = await beginMove(cluster, key);
      onTestFinished(() => move.finish());
      // TRYAGAIN: while the slot moves, the client repeats a call of two absent keys.
      send("repeated", [key, `{${key}}:record`]);
      send("later", [userOnFirst(cluster, (one) => one)]);
      await until(() => told.length === 1, { what: "the later answer" });
      expect(connection.inFlight).toBe(0);
      client
        .nodes("master")
        .find(({ options }) => options.port === port)
        ?.stream.destroy();
      await until(() => told.length === 2, { what: "the call to be closed" });
      expect(told).toEqual(["later value", "repeated closed"]);
      connection.unwatch();
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
