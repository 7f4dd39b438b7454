import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { RedisStore } from "../../src/index.ts";
import { asking } from "../support/asking.ts";
import { type AnyCluster, closeClients, clusterClients, untilReady } from "../support/clients.ts";
import { command } from "../support/command.ts";
import { freshUser } from "../support/ids.ts";
import { acquired, closeLocks, commandOf, openLock } from "../support/locks.ts";
import { type RedisCluster, startCluster } from "../support/redis-cluster.ts";
import type { RedisServer } from "../support/redis-server.ts";

describe.each(clusterClients)("rule 9: one silent node of a Cluster, with $name", ({ connect }) => {
  let cluster: RedisCluster;
  let client: AnyCluster;
  beforeEach(async () => {
    cluster = await startCluster(["--cluster-node-timeout", "20000"]);
    client = connect(cluster.ports);
    await untilReady(client);
  });
  afterEach(async () => {
    void closeLocks();
    closeClients();
    await cluster.stop();
  });

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
