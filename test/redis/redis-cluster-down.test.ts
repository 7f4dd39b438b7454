import { afterEach, describe, expect, test } from "vitest";
import { RedisStore } from "../../src/index.ts";
import { asking } from "../support/asking.ts";
import { closeClients, clusterClients, untilReady } from "../support/clients.ts";
import { command } from "../support/command.ts";
import { causeOf, closeLocks, commandOf, leaseOf, openLock } from "../support/locks.ts";
import { startCluster } from "../support/redis-cluster.ts";
import { forTest } from "../support/redis-server.ts";
import { userOnFirst } from "../support/slot-move.ts";
import { answer, foundBy, submissionOf, submit } from "../support/submissions.ts";
import { until } from "../support/until.ts";

afterEach(async () => {
  await closeLocks();
  closeClients();
});

const times = { ttlMs: 20_000, acquireTimeoutMs: 1_000, commandTimeoutMs: 250, maxHoldMs: 60_000 };

describe.each(clusterClients)("a Cluster that is down, with $name", ({ connect }) => {
  test.each([
    { reads: "no", held: "unavailable", submitted: "unavailable", found: "unknown", seen: "no" },
    { reads: "yes", held: "contended", submitted: "order 7", found: "completed", seen: "held" },
  ])("grants nothing, and with cluster-allow-reads-when-down $reads answers that", async (row) => {
    const reads = ["--cluster-allow-reads-when-down", row.reads];
    const cluster = await forTest(startCluster([...reads, "--cluster-node-timeout", "500"]));
    const client = await untilReady(connect(cluster.ports));
    const store = new RedisStore(client);
    const lock = openLock({ store, ...times });
    const newUser = () => userOnFirst(cluster, (one) => lock.keyFor(one));
    const [holder, buyer, fresh, user] = [newUser(), newUser(), newUser(), newUser()];
    const lease = await leaseOf(lock, holder);
    await (await submissionOf(lock, buyer)).complete(answer);
    const own = commandOf({ key: lock.keyFor(user), times });
    const asked = asking(store);
    expect((await asked.acquire(own).reply).kind).toBe("taken");

    await cluster.nodes[2]?.kill();
    const [port, other] = cluster.ports as [number, number];
    const isDown = async () =>
      String(await command(port, "CLUSTER", "INFO")).includes("cluster_state:fail");
    await until(isDown, { what: "the Cluster to be down" });
    expect(causeOf(await lock.acquire(fresh))).toMatchObject({ code: "SUBMIT_LOCK_UNAVAILABLE" });
    expect((await lock.acquire(holder)).outcome).toBe(row.held);
    expect(foundBy(await submit(lock, buyer))).toBe(row.submitted);
    const submission = { id: "cart 7" };
    expect((await lock.lookUp(buyer, { submission })).outcome).toBe(row.found);
    const seen = await lock.inspect(holder).catch(() => ({ state: "no" }));
    expect(seen.state).toBe(row.seen);
    // A confirm reads its own lock, which nobody else can have been given.
    const confirmed = (await asked.acquire(own).reply).kind;
    expect(confirmed === "mine").toBe(row.reads === "yes");
    for (const ask of [asked.extend, asked.release]) {
      expect(["unsent", "unknown"]).toContain((await ask(own).reply).kind);
    }

    // The nodes that are left serve on: nothing was taken meanwhile, and nothing is left.
    for (const node of [port, other]) {
      await command(node, "CONFIG", "SET", "cluster-require-full-coverage", "no");
    }
    await lock.withLock(fresh, { waitMs: 20_000 }, () => {});
    // ioredis may have repeated the release of before.
    expect(["done", "gone"]).toContain((await asked.release(own).reply).kind);
    expect(await lease.release()).toBe("released");
    await until(() => lock.stats().retiring === 0, { what: "every retire to end" });
    expect(await command(port, "EXISTS", lock.keyFor(fresh))).toBe(0);
  });
});
