import { afterAll, afterEach, describe, expect, inject, test } from "vitest";
import { RedisStore, type SubmitLock } from "../../src/index.ts";
import { startReplicatedCluster } from "../lab/topologies/cluster.ts";
import { isInStep, type Node } from "../lab/topologies/topology.ts";
import { closeClients, clusterClients, untilReady } from "../support/clients.ts";
import { freshUser } from "../support/ids.ts";
import { closeLocks, leaseOf, openLock } from "../support/locks.ts";
import { observer } from "../support/observer.ts";
import { beginMove } from "../support/slot-move.ts";
import { answer, recordKey, submissionOf } from "../support/submissions.ts";
import { until } from "../support/until.ts";

const cluster = await startReplicatedCluster(inject("redisServerBinary"));
afterAll(() => cluster.stop());
afterEach(async () => {
  await closeLocks();
  closeClients();
});

const brisk = { ttlMs: 20_000, acquireTimeoutMs: 4_000, commandTimeoutMs: 1_000 } as const;
/** A wait for replicas may last for 5 s. */
const slow = { ttlMs: 40_000, acquireTimeoutMs: 20_000, commandTimeoutMs: 10_000 } as const;

const keyOf = (user: string) => `lock:submit:${user}`;
const replicaOf = async (master: Node) => (await cluster.replicasOf(master))[0] as Node;

describe.each(clusterClients)("rule 21: acknowledged on a Cluster, with $name", ({ connect }) => {
  async function open(times: typeof brisk | typeof slow): Promise<SubmitLock> {
    const client = await untilReady(connect(cluster.nodes.map(({ port }) => port)));
    const store = new RedisStore(client, { ackReplicas: 1 });
    // Its connections to all masters are up: an attempt that comes before them asks again later.
    const first = openLock({ store, ...brisk });
    const leases = await Promise.all(users(12).map((user) => leaseOf(first, user)));
    await Promise.all(leases.map((lease) => lease.release()));
    return openLock({ store, ...times });
  }
  const users = (count: number) => Array.from({ length: count }, freshUser);

  async function copyOf(key: string): Promise<ReturnType<typeof observer>> {
    const { port } = await replicaOf(await cluster.masterOf(key));
    return observer(port);
  }

  /** What a replica has: it reads for others where it is told to. */
  async function isCopied(key: string): Promise<boolean> {
    const replica = await copyOf(key);
    const slot = await replica.send("CLUSTER", "KEYSLOT", key);
    const keys = (await replica.send("CLUSTER", "GETKEYSINSLOT", Number(slot), 100)) as string[];
    return keys.includes(key);
  }

  test("the locks of one turn on all masters, and their records, are on the replicas", async () => {
    const lock = await open(brisk);
    const leases = await Promise.all(users(12).map((user) => submissionOf(lock, user)));
    for (const { key } of leases) expect(await isCopied(key)).toBe(true);
    const completed = await Promise.all(leases.map((lease) => lease.complete(answer)));
    expect(new Set(completed)).toEqual(new Set(["recorded"]));
    for (const { key } of leases) expect(await isCopied(recordKey(key))).toBe(true);
  });

  test("a master whose replica is away holds up its own users, and nobody else's", async () => {
    const lock = await open(slow);
    const all = users(12);
    const victim = await cluster.masterOf(keyOf(all[0] as string));
    const [waiting, others]: [string[], string[]] = [[], []];
    for (const user of all) {
      ((await cluster.masterOf(keyOf(user))) === victim ? waiting : others).push(user);
    }
    const replica = await replicaOf(victim);
    replica.pause();
    const attempts = Promise.all(waiting.map((user) => lock.acquire(user)));
    let isSettled = false;
    void attempts.finally(() => {
      isSettled = true;
    });
    const isTaken = async (user: string) => (await victim.ask("EXISTS", keyOf(user))) === 1;
    await until(() => isTaken(all[0] as string), { what: "the master to have the key" });
    // Behind the others' wait, each would take 5 s.
    for (const user of others) expect((await lock.acquire(user)).outcome).toBe("acquired");
    expect(isSettled).toBe(false);
    replica.resume();
    for (const attempt of await attempts) expect(attempt.outcome).toBe("acquired");
    await until(() => isInStep(replica), { what: "the replica to be back", everyMs: 50 });
  });

  test("the users of a slot that has moved are served by its new master", async () => {
    const lock = await open(brisk);
    const masters = await cluster.masters();
    const ports = masters.map(({ port }) => port);
    const user = await until(
      async () => {
        const one = freshUser();
        return (await cluster.masterOf(keyOf(one))) === masters[0] && one;
      },
      { what: "a user on the first master", everyMs: 1 },
    );
    await (await leaseOf(lock, user)).release();
    await (await beginMove({ ports }, keyOf(user))).finish();
    // Others of the first master, in the same turn and so in the same pipeline.
    await Promise.all([user, ...users(20)].map((one) => leaseOf(lock, one)));
    await until(async () => (await cluster.masterOf(keyOf(user))) === masters[1], {
      what: "all nodes to know of the move",
    });
    await until(() => isCopied(keyOf(user)), { what: "the lock to be on a replica" });
  });
});
