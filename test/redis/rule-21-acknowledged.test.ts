import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, afterEach, describe, expect, inject, test } from "vitest";
import { type LockTimes, RedisStore, type SubmitLock } from "../../src/index.ts";
import { touchScript } from "../../src/stores/redis/replicas.ts";
import { startReplicatedCluster } from "../lab/topologies/cluster.ts";
import { isInStep, type Node } from "../lab/topologies/topology.ts";
import { asking } from "../support/asking.ts";
import {
  type AnyRedis,
  closeClient,
  clusterClients,
  redisClients,
  untilReady,
} from "../support/clients.ts";
import { freshUser } from "../support/ids.ts";
import { acquired, causeOf, commandOf, leaseOf, openLock } from "../support/locks.ts";
import { observer } from "../support/observer.ts";
import { forTest } from "../support/redis-server.ts";
import { startReplicated } from "../support/replicated-redis.ts";
import { beginMove } from "../support/slot-move.ts";
import { answer, foundBy, recordKey, submissionOf, submit } from "../support/submissions.ts";
import { until } from "../support/until.ts";
import { closeFixtures, executed, isAcquire, openFixture } from "./fixture.ts";

afterEach(() => {
  server.replicas[0]?.resume();
  closeFixtures();
});

const server = await startReplicated();
afterAll(() => server.stop());

/** Each wait for replicas may last for 5 s, longer than whatever is compared with it. */
const slow = { ttlMs: 40_000, acquireTimeoutMs: 20_000, commandTimeoutMs: 10_000 } as const;
const brisk = { ttlMs: 20_000, acquireTimeoutMs: 4_000, commandTimeoutMs: 1_000 } as const;
const ackReplicas = 1;

const keyOf = (user: string) => `lock:submit:${user}`;
const pause = () => server.replicas[0]?.pause();

/** Whether it has settled by now. */
function watch(promise: Promise<unknown>): { readonly isSettled: boolean } {
  const watched = { isSettled: false };
  void promise.finally(() => {
    watched.isSettled = true;
  });
  return watched;
}

describe.each(redisClients)("rule 21: acknowledged by replicas, with $name", ({ connect }) => {
  const open = async (times: typeof slow | typeof brisk) => {
    const fixture = await openFixture({
      connect,
      port: server.master.port,
      storeOptions: { ackReplicas },
      ...times,
    });
    // Its own connections are up.
    await leaseOf(fixture.lock, freshUser()).then((lease) => lease.release());
    return fixture;
  };

  test("an acquire does not count until a replica has it", async () => {
    const { lock, redis } = await open(slow);
    pause();
    const user = freshUser();
    const attempt = lock.acquire(user);
    const seen = watch(attempt);
    await until(() => redis.exists(keyOf(user)), { what: "the master to have the key" });
    await sleep(300);
    expect(seen.isSettled).toBe(false);
    server.replicas[0]?.resume();
    const { lease } = acquired(await attempt);
    expect(await server.copy.ownerOf(lease.key)).toBe(lease.ownerId);
  });

  test("without a replica in time it is unavailable, says why, and leaves nothing", async () => {
    const { lock, redis } = await open(brisk);
    pause();
    const user = freshUser();
    const cause = causeOf(await lock.acquire(user));
    expect(cause).toMatchObject({ code: "SUBMIT_LOCK_UNAVAILABLE" });
    expect(cause.message).toMatch(
      /1 replica was to acknowledge within 500 ms \(ackReplicas\), 0 did/,
    );
    await until(async () => !(await redis.exists(keyOf(user))), { what: "the key to be gone" });
    await until(() => lock.stats().retiring === 0, { what: "the retire to end" });
    server.replicas[0]?.resume();
    await lock.withLock(user, { waitMs: 10_000 }, () => {});
  });

  test("while an acquire waits, nothing else of its client does", async () => {
    const { lock, client, store } = await open(slow);
    const lease = await leaseOf(lock, freshUser());
    const held = commandOf();
    const asked = asking(store);
    expect((await asked.acquire(held).reply).kind).toBe("taken");
    pause();
    const user = freshUser();
    const seen = watch(lock.acquire(user));
    await until(() => server.redis.exists(keyOf(user)), { what: "the acquire to wait" });
    await sleep(100);

    expect((await asked.extend(held).reply).kind).toBe("done");
    expect((await asked.release(held).reply).kind).toBe("done");
    expect(await lease.release()).toBe("released");
    // Nobody has to confirm that somebody else holds it.
    expect((await lock.acquire(user)).outcome).toBe("contended");
    const plain = openLock({ store: new RedisStore(client), ...slow });
    expect((await plain.acquire(freshUser())).outcome).toBe("acquired");
    expect(seen.isSettled).toBe(false);
  });

  test("nobody waits behind more than one wait: what comes meanwhile shares the next", async () => {
    const { lock, proxy, redis } = await open(slow);
    const waits = proxy.count("wait");
    pause();
    const attempts = [];
    for (let i = 0; i < 5; i++) {
      const user = freshUser();
      attempts.push(lock.acquire(user));
      await until(() => redis.exists(keyOf(user)), { what: "the master to have the key" });
    }
    await until(() => proxy.count("wait") === waits + 1, { what: "the first to wait" });
    server.replicas[0]?.resume();
    for (const attempt of attempts) expect((await attempt).outcome).toBe("acquired");
    expect(proxy.count("wait")).toBe(waits + 2);
  });

  test("a confirm that finds its own lock writes it again, unchanged, and waits for that", async () => {
    const { store, redis } = await open(slow);
    const asked = asking(store);
    const command = commandOf({ times: { ...slow, maxHoldMs: 60_000 } });
    const first = await asked.acquire(command).reply;
    if (first.kind !== "taken") throw new Error(`It was ${first.kind}.`);
    const expiresAtMs = async () => Number(await redis.send("PEXPIRETIME", command.key));
    const [value, expiry] = [await redis.get(command.key), await expiresAtMs()];
    const writes = await executed(server.copy, "pexpireat");
    const confirmed = await asked.acquire(command).reply;
    expect(confirmed).toMatchObject({ kind: "mine", fencingToken: first.fencingToken });
    // What the replica executes, not what it has heard of before.
    expect(await executed(server.copy, "pexpireat")).toBe(writes + 1);
    expect(await redis.get(command.key)).toBe(value);
    // Up to Redis 7.0 time goes by in a script.
    expect(await expiresAtMs()).toBeGreaterThanOrEqual(expiry);
    expect(await expiresAtMs()).toBeLessThan(expiry + 100);
    pause();
    const times = { ...brisk, maxHoldMs: 60_000 };
    expect(await asked.acquire({ ...command, times }).reply).toMatchObject({
      kind: "unknown",
      cause: { message: expect.stringContaining("1 replica was to acknowledge") },
    });
  });

  test("a reply that is lost on either connection is asked for again", async () => {
    const { lock, proxy } = await open(brisk);
    const isWait = ([name]: string[]) => name === "wait";
    for (const match of [isAcquire, isWait]) {
      const lost = proxy.loseReplyOnce(match);
      const { lease, confirmed } = acquired(await lock.acquire(freshUser()));
      await lost;
      expect(confirmed).toBe(true);
      expect(await server.copy.ownerOf(lease.key)).toBe(lease.ownerId);
    }
  });

  test("an acquire that was executed, and not confirmed, is not in flight", async () => {
    const { lock, proxy } = await open(slow);
    const lost = proxy.loseReplyOnce(([name]) => name === "wait", { resetAfterMs: 0 });
    const { lease, confirmed } = acquired(await lock.acquire(freshUser()));
    await lost;
    expect(confirmed).toBe(true);
    expect(await lease.release()).toBe("released");
    // Not the 20 s in which a request in flight might come.
    const boundMs = slow.acquireTimeoutMs / 2;
    await until(() => lock.stats().retiring === 0, { what: "the retire to end", boundMs });
  });

  test("a lock that is gone before anybody has confirmed it is not acquired", async () => {
    const { lock, proxy, redis } = await open(brisk);
    const user = freshUser();
    const held = proxy.holdRequestOnce(([, script]) => script === touchScript);
    const attempt = lock.acquire(user);
    await held;
    // As a failover loses it.
    await redis.send("SET", keyOf(user), "somebody else", "PX", 30_000);
    proxy.releaseHeld();
    expect((await attempt).outcome).toBe("contended");
    expect(await redis.get(keyOf(user))).toBe("somebody else");
  });

  test("a complete is answered when a replica has the record, and the lock is free before", async () => {
    const { lock, redis } = await open(slow);
    const user = freshUser();
    const lease = await submissionOf(lock, user);
    pause();
    const completing = lease.complete(answer);
    const seen = watch(completing);
    await until(() => redis.exists(recordKey(lease.key)), { what: "the record" });
    expect(await redis.exists(lease.key)).toBe(false);
    await sleep(300);
    expect(seen.isSettled).toBe(false);
    // A retry needs no replica: it takes nothing.
    expect(foundBy(await submit(lock, user))).toBe("order 7");
    server.replicas[0]?.resume();
    expect(await completing).toBe("recorded");
    expect(await server.copy.exists(recordKey(lease.key))).toBe(true);
  });

  test("a record that somebody has made last for ever stays, and is not confirmed", async () => {
    const { lock, proxy, redis } = await open(brisk);
    const lease = await submissionOf(lock, freshUser());
    const record = recordKey(lease.key);
    const held = proxy.holdRequestOnce(([, script]) => script === touchScript);
    const completing = lease.complete(answer);
    const seen = watch(completing);
    await held;
    await redis.send("PERSIST", record);
    proxy.releaseHeld();
    await sleep(1_500);
    expect(seen.isSettled).toBe(false);
    expect(await redis.exists(record)).toBe(true);
    await redis.send("PEXPIRE", record, 60_000);
    expect(await completing).toBe("recorded");
  });
});

const lockOn = (
  client: AnyRedis,
  times: Omit<LockTimes, "maxHoldMs">,
  ackReplicas = 1,
): SubmitLock => openLock({ store: new RedisStore(client, { ackReplicas }), ...times });
const use = async (lock: SubmitLock) => await (await leaseOf(lock, freshUser())).release();

describe.each(redisClients)("rule 21: the connections that wait, with $name", ({ connect }) => {
  async function openNamed() {
    const connectionName = `shop-${freshUser()}`;
    const connections = async () =>
      String(await server.redis.send("CLIENT", "LIST")).split(` name=${connectionName} `).length -
      1;
    const client = await untilReady(connect(server.master.port, { connectionName }));
    return { client, connections };
  }

  test("are open while a lock uses them, and as long as the client's", async () => {
    const { client, connections } = await openNamed();
    const [one, other] = [lockOn(client, slow), lockOn(client, slow)];
    await until(async () => (await connections()) === 2, { what: "a connection of its own" });
    await use(one);
    await one.close();
    await use(other);
    expect(await connections()).toBe(2);
    await other.close();
    await until(async () => (await connections()) === 1, { what: "it to be closed" });
    const third = lockOn(client, brisk);
    await until(async () => (await connections()) === 2, { what: "another one" });
    closeClient(client);
    await until(async () => (await connections()) === 0, { what: "both to be closed" });
    expect((await third.acquire(freshUser())).outcome).toBe("unavailable");
    expect(await connections()).toBe(0);
  });
});

describe.each(redisClients)(
  "rule 21: as many replicas as wanted, with $name",
  ({ connect, rights = [] }) => {
    test("one of two is enough where one is asked for, and not where two are", async () => {
      const two = await forTest(startReplicated(2));
      const client = await untilReady(connect(two.master.port));
      const [one, both] = [lockOn(client, brisk, 1), lockOn(client, brisk, 2)];
      await use(both);
      two.replicas[1]?.pause();
      expect((await one.acquire(freshUser())).outcome).toBe("acquired");
      expect(causeOf(await both.acquire(freshUser())).message).toMatch(
        /2 replicas were to acknowledge within 500 ms \(ackReplicas\), 1 did/,
      );
      two.replicas[1]?.resume();
      await both.withLock(freshUser(), { waitMs: 10_000 }, () => {});
    });

    test("check says that there are fewer, and that WAIT is not permitted", async () => {
      const alone = await forTest(startReplicated(0));
      const times = { ...brisk, acquireTimeoutMs: 2_000 };
      const connected = (username?: string) =>
        untilReady(connect(alone.master.port, username ? { username, password: "p" } : {}));
      await expect(lockOn(await connected(), times).check()).rejects.toMatchObject({
        code: "SUBMIT_LOCK_UNAVAILABLE",
        message: expect.stringContaining(
          "1 replica was to acknowledge within 500 ms (ackReplicas), 0",
        ),
      });
      const may = "on >p ~* +eval +evalsha +get +set +pttl +pexpire +del +time +info".split(" ");
      await alone.redis.send("ACL", "SETUSER", "shop", ...may, ...rights);
      await expect(lockOn(await connected("shop"), times).check()).rejects.toMatchObject({
        code: "SUBMIT_LOCK_MISCONFIGURED",
        message: expect.stringMatching(/^Redis does not permit WAIT, which ackReplicas needs: /),
      });
      const isEmpty = async () => (await alone.redis.send("DBSIZE")) === 0;
      await until(isEmpty, { what: "no key to be left" });
    });
  },
);

const cluster = await startReplicatedCluster(inject("redisServerBinary"));
afterAll(() => cluster.stop());

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
