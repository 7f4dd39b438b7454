import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, afterEach, describe, expect, test } from "vitest";
import { type Lease, LockUnavailableError, MemoryStore, RedisStore } from "../../src/index.ts";
import { asking } from "../support/asking.ts";
import { record } from "../support/channels.ts";
import {
  type AnyCluster,
  type AnyRedis,
  ioredisClients,
  ioredisClusters,
  redisClients,
  statusOf,
  untilReady,
} from "../support/clients.ts";
import { freshUser } from "../support/ids.ts";
import { acquired, commandOf, openLock } from "../support/locks.ts";
import { startCluster } from "../support/redis-cluster.ts";
import { forTest, sharedRedisPort, startRedis } from "../support/redis-server.ts";
import { scriptCallsOf } from "../support/script-calls.ts";
import {
  answer,
  foundBy,
  onceOf,
  recordKey,
  recordOf,
  submissionOf,
  submit,
} from "../support/submissions.ts";
import { until } from "../support/until.ts";
import {
  closeFixtures,
  isAcquire,
  isComplete,
  isExtend,
  isRelease,
  openFixture,
  openOrder,
  patient,
} from "./fixture.ts";

afterEach(closeFixtures);

const body = (text: string) => ({ status: 201, body: text });

describe.each(redisClients)(
  "rule 17, P9: complete is sent until it is answered, with $name",
  ({ connect }) => {
    test("by a Redis that was unreachable and is back", async () => {
      const { lock, proxy, redis, user, lease } = await openOrder({ connect, ttlMs: 20_000 });
      await proxy.refuse(true);
      proxy.resetAll();
      const completing = lease.complete(answer);
      await sleep(500);
      expect(await redis.ownerOf(lease.key)).toBe(lease.ownerId);
      await proxy.refuse(false);
      const from = performance.now();
      expect(await completing).toBe("recorded");
      expect(performance.now() - from).toBeLessThan(10_000);
      expect(foundBy(await submit(lock, user))).toBe("order 7");
      expect(await redis.exists(lease.key)).toBe(false);
    });

    test("before a retry runs, also where the lock did not outlive the outage", async () => {
      const times = { ttlMs: 20_000, acquireTimeoutMs: 5_000 };
      const { lock, proxy, redis, user, lease } = await openOrder({ connect, ...times });
      await proxy.refuse(true);
      proxy.resetAll();
      const completing = lease.complete(answer);
      // As a Redis does that is killed while its file is written to the disk.
      await redis.send("DEL", lease.key);
      const retries: ReturnType<typeof submit>[] = [];
      for (let i = 0; i < 20; i++) {
        retries.push(submit(lock, user));
        await sleep(7);
      }
      await proxy.refuse(false);
      expect((await Promise.all(retries)).map(foundBy)).toEqual(Array(20).fill("order 7"));
      await completing;
    });

    test("before a retry runs, also where Redis takes no writes for longer than the lock lives", async () => {
      const server = await forTest(startRedis());
      const times = { ttlMs: 1_000, acquireTimeoutMs: 500, commandTimeoutMs: 100 };
      const of = { connect, port: server.port, ...times, maxHoldMs: 60_000 };
      const { lock, redis, user, lease } = await openOrder(of);
      await redis.send("CONFIG", "SET", "min-replicas-to-write", "1");
      void lease.complete(answer);
      const attempts = record("submit-lock:acquire", lease.key);
      await until(async () => !(await redis.exists(lease.key)), { what: "the lock to run out" });
      await sleep(1_000);
      expect(await submit(lock, user)).toMatchObject({ outcome: "unavailable" });
      await redis.send("CONFIG", "SET", "min-replicas-to-write", "0");
      await until(async () => foundBy(await submit(lock, user)) === "order 7", {
        what: "the record",
      });
      expect(attempts.map(({ outcome }) => outcome)).not.toContain("acquired");
    });

    test("and a retry meanwhile is told that the order is in flight, not run again", async () => {
      const { proxy, user, lease } = await openOrder({ connect });
      const { lock: other } = await openFixture({ connect });
      proxy.holdRequests();
      const completing = lease.complete(answer);
      for (let i = 0; i < 5; i++) {
        const attempt = await submit(other, user);
        expect(attempt).toMatchObject({ outcome: "contended", sameSubmission: true });
        await sleep(50);
      }
      proxy.releaseHeld();
      expect(await completing).toBe("recorded");
      expect(foundBy(await submit(other, user))).toBe("order 7");
    });
  },
);

describe("rule 17: until complete is answered", () => {
  test("nothing of the attempt deletes its lock, and then its late requests are retired", async () => {
    const { lock, proxy, redis } = await openFixture({ ttlMs: 20_000, acquireTimeoutMs: 2_000 });
    const user = freshUser();
    const retire = record("submit-lock:retire", lock.keyFor(user));
    const held = proxy.holdRequestOnce(isAcquire, { resetClientAfterMs: 0 });
    const { lease, confirmed } = acquired(await submit(lock, user));
    await held;
    expect(confirmed).toBe(true);
    proxy.holdRequests();
    const completing = lease.complete(answer);
    await until(() => proxy.commands.filter(isComplete).length > 0, { what: "the first copy" });
    await sleep(300);
    expect(proxy.commands.some(isRelease)).toBe(false);
    expect(await redis.ownerOf(lease.key)).toBe(lease.ownerId);
    proxy.releaseHeld();
    expect(await completing).toBe("recorded");
    await until(() => retire.length > 0, { what: "the owner id to be retired" });
    expect(retire).toMatchObject([{ outcome: "final" }]);
    expect(proxy.commands.some(isRelease)).toBe(true);
    expect(await redis.exists(lease.key)).toBe(false);
    expect(foundBy(await submit(lock, user))).toBe("order 7");
  });

  test("the lease is extended", async () => {
    const server = await forTest(startRedis());
    const times = { ttlMs: 6_000, acquireTimeoutMs: 3_000, commandTimeoutMs: 50 };
    const { redis, lease } = await openOrder({ ...times, port: server.port });
    // What a complete needs and an extend does not.
    await redis.send("ACL", "SETUSER", "default", "-set");
    const completing = lease.complete(answer);
    const from = performance.now();
    while (performance.now() - from < 1.2 * times.ttlMs) {
      expect(await redis.ownerOf(lease.key)).toBe(lease.ownerId);
      await sleep(50);
    }
    await redis.send("ACL", "SETUSER", "default", "+set");
    expect(await completing).toBe("recorded");
  });

  test("an extend that meets what it did is not lost, and is the last one", async () => {
    const { lock, proxy, redis, user, lease } = await openOrder({
      ttlMs: 1_200,
      acquireTimeoutMs: 600,
    });
    const lost = record("submit-lock:lost", lock.keyFor(user));
    const { signal } = lease;
    // Done, and for as long as the lease would live nobody hears of it.
    proxy.swallowReplies(true);
    const completing = lease.complete(answer);
    await until(() => redis.exists(recordKey(lease.key)), { what: "the record" });
    await sleep(500);
    proxy.swallowReplies(false);
    proxy.resetAll();
    expect(await completing).toBe("recorded");
    await sleep(500);
    expect(lost).toEqual([]);
    expect(signal.aborted).toBe(false);
    const extended = proxy.commands.filter(isExtend).length;
    await sleep(900);
    expect(proxy.commands.filter(isExtend)).toHaveLength(extended);
  });
});

describe("rule 17: a complete that is given up", () => {
  const times = { ttlMs: 2_000, acquireTimeoutMs: 1_000, commandTimeoutMs: 30 } as const;
  /** 2 × acquireTimeoutMs + ttlMs. */
  const patienceMs = 4_000;

  test("is unconfirmed after 2 × acquireTimeoutMs + ttlMs, goes on, and is recorded when it can be", async () => {
    const { lock, proxy, redis, user, lease } = await openOrder(times);
    const complete = record("submit-lock:complete", lock.keyFor(user));
    proxy.holdRequests();
    const from = performance.now();
    expect(await lease.complete(answer)).toBe("unconfirmed");
    expect(performance.now() - from).toBeGreaterThanOrEqual(patienceMs - 1);
    // It is told once, with its true outcome: a count of answers that were not kept is right.
    expect(complete).toEqual([]);
    proxy.releaseHeld();
    await until(() => redis.exists(recordKey(lease.key)), { what: "the record" });
    expect(foundBy(await submit(lock, user))).toBe("order 7");
    await until(() => complete.length > 0, { what: "its message" });
    expect(complete).toEqual([expect.objectContaining({ outcome: "late", cause: undefined })]);
    expect(complete[0]?.durationMs).toBeGreaterThan(patienceMs - 1);
  });

  test("is not extended any longer, and its lock is left to run out", async () => {
    const server = await forTest(startRedis());
    const { proxy, redis, lease } = await openOrder({ ...times, port: server.port });
    await redis.send("ACL", "SETUSER", "default", "-set");
    const from = performance.now();
    expect(await lease.complete(answer)).toBe("unconfirmed");
    await until(async () => !(await redis.exists(lease.key)), { what: "the lock to run out" });
    const heldMs = performance.now() - from;
    expect(heldMs).toBeGreaterThan(patienceMs);
    expect(proxy.commands.some(isRelease)).toBe(false);
    await redis.send("ACL", "SETUSER", "default", "+set");
    await until(() => redis.exists(recordKey(lease.key)), { what: "the record" });
  });

  test("is sent in an outage that is longer than maxHoldMs, and runs no retry before", async () => {
    const { client, lock, proxy, user, lease } = await openOrder({ ...times, maxHoldMs: 4_500 });
    await proxy.refuse(true);
    proxy.resetAll();
    await until(() => statusOf(client) !== "ready", { what: "the client to notice" });
    expect(await lease.complete(answer)).toBe("unconfirmed");
    await sleep(1_500);
    const retry = (async () => {
      for (;;) {
        const found = foundBy(await submit(lock, user));
        if (found !== "unavailable") return found;
      }
    })();
    await proxy.refuse(false);
    expect(await retry).toBe("order 7");
  });

  test("is not sent any more after retainMs", async () => {
    const { client, lock, proxy, redis } = await openFixture(times);
    const lease = await submissionOf(lock, freshUser(), { retainMs: 4_500 });
    const complete = record("submit-lock:complete", lease.key);
    await proxy.refuse(true);
    proxy.resetAll();
    await until(() => statusOf(client) !== "ready", { what: "the client to notice" });
    expect(await lease.complete(answer)).toBe("unconfirmed");
    await sleep(1_000);
    await proxy.refuse(false);
    await until(async () => (await lock.acquire(freshUser())).outcome === "acquired", {
      what: "Redis to be back",
    });
    await sleep(200);
    expect(await redis.exists(recordKey(lease.key))).toBe(false);
    expect(proxy.commands.some(isComplete)).toBe(false);
    const cause = expect.any(LockUnavailableError);
    expect(complete).toEqual([expect.objectContaining({ outcome: "unconfirmed", cause })]);
  });

  test("is sent for longer than maxHoldMs where Redis has refused it as not permitted", async () => {
    const server = await forTest(startRedis());
    const of = { ...times, maxHoldMs: 4_500, port: server.port };
    const { lock, redis, user, lease } = await openOrder(of);
    await redis.send("ACL", "SETUSER", "default", "-set");
    expect(await lease.complete(answer)).toBe("unconfirmed");
    await sleep(1_500);
    await redis.send("ACL", "SETUSER", "default", "+set");
    await until(() => redis.exists(recordKey(lease.key)), { what: "the record" });
    expect(foundBy(await submit(lock, user))).toBe("order 7");
  });

  test("is not sent any more after maxHoldMs if it began behind 1,000 others", async () => {
    const store = new MemoryStore();
    const lock = openLock({ store, ...times, maxHoldMs: 4_500 });
    const complete = record("submit-lock:complete");
    const leases: Lease[] = [];
    for (let i = 0; i <= 1_000; i++) leases.push(await submissionOf(lock, freshUser()));
    store.play("unreachable");
    for (const lease of leases) void lease.complete(answer);
    await until(() => complete.length > 0, { what: "one to be given up" });
    await sleep(1_000);
    const { key } = leases[1_000] as Lease;
    expect(complete).toEqual([expect.objectContaining({ key, outcome: "unconfirmed" })]);
    store.play("none");
  });
});

describe("rule 17: whichever of complete and release is called first decides", () => {
  test("a complete after a release keeps nothing", async () => {
    const { proxy, redis, lease } = await openOrder();
    const released = lease.release();
    expect(await lease.complete(answer)).toBe("unconfirmed");
    expect(await released).toBe("released");
    expect(await redis.exists(recordKey(lease.key))).toBe(false);
    expect(proxy.commands.some(isComplete)).toBe(false);
  });

  test("a release after a complete waits for it, and a second complete is the first", async () => {
    const { lock, proxy, user, lease } = await openOrder(patient);
    const completing = lease.complete(body("first"));
    const [released, again] = [lease.release(), lease.complete(body("second"))];
    expect(again).toBe(completing);
    expect(await Promise.all([completing, released])).toEqual(["recorded", "released"]);
    expect(await lease.release()).toBe("released");
    expect(proxy.commands.filter(isComplete)).toHaveLength(1);
    expect(proxy.commands.some(isRelease)).toBe(false);
    expect(foundBy(await submit(lock, user))).toBe("first");
  });
});

describe("rule 17: what waits in memory is bounded", () => {
  const mebibyte = 1024 * 1024;

  test("beyond 8 Mi characters bodies are dropped, and said to be; afterwards they are kept again", async () => {
    const { lock, proxy } = await openFixture({ ttlMs: 60_000 });
    const users = Array.from({ length: 10 }, freshUser);
    const complete = record("submit-lock:complete");
    const leases = [];
    for (const user of users) leases.push(await submissionOf(lock, user));
    proxy.holdRequests();
    const completing = leases.map((lease, i) => lease.complete(body(`${i}`.repeat(mebibyte))));
    await until(() => proxy.commands.some(isComplete), { what: "the first copies" });
    // A lease that waits for its complete is extended, and is not held any more.
    expect(lock.stats().held).toBe(0);
    proxy.releaseHeld();
    expect(new Set(await Promise.all(completing))).toEqual(new Set(["recorded"]));
    const dropped = users.map((user) => {
      const key = lock.keyFor(user);
      return complete.find((message) => message.key === key)?.bodyDropped;
    });
    expect(dropped).toEqual([...Array(7).fill(false), true, true, true]);
    for (const [i, user] of users.entries()) {
      const attempt = await submit(lock, user);
      if (attempt.outcome !== "completed") throw new Error(attempt.outcome);
      expect(attempt.answer.status).toBe(201);
      expect(attempt.answer.body?.length).toBe(i < 7 ? mebibyte : undefined);
    }
    const later = freshUser();
    await (await submissionOf(lock, later)).complete(body("x".repeat(mebibyte)));
    expect(foundBy(await submit(lock, later))).toHaveLength(mebibyte);
  });
});

const cluster = await startCluster();
afterAll(() => cluster.stop());

type Connect = (options: { enableAutoPipelining: boolean }) => AnyRedis | AnyCluster;

const clients: [name: string, connect: Connect][] = [
  ...ioredisClients.map(({ name, connect }): [string, Connect] => [
    name,
    (options) => connect(sharedRedisPort(), options),
  ]),
  ...ioredisClusters.map(({ name, connect }): [string, Connect] => [
    name,
    (options) => connect(cluster.ports, options),
  ]),
];

/** Whether the complete is its request's second copy, which goes in two steps on a Cluster. */
const ways = [
  { autoPipelining: false, isAgain: false, ackReplicas: undefined },
  { autoPipelining: true, isAgain: false, ackReplicas: undefined },
  { autoPipelining: false, isAgain: true, ackReplicas: undefined },
  { autoPipelining: true, isAgain: true, ackReplicas: undefined },
  { autoPipelining: false, isAgain: false, ackReplicas: 1 },
];

test.each(clients.flatMap(([name, connect]) => ways.map((way) => ({ name, connect, ...way }))))(
  "a complete is handed to the client within its turn and ahead of later acquires: $name, autopipelining $autoPipelining, second copy $isAgain, replicas $ackReplicas",
  async ({ connect, autoPipelining, isAgain, ackReplicas }) => {
    const client = await untilReady(connect({ enableAutoPipelining: autoPipelining }));
    const plain = asking(new RedisStore(client));
    const other = asking(new RedisStore(client));
    const store = ackReplicas ? asking(new RedisStore(client, { ackReplicas })) : plain;
    const mine = onceOf();
    expect(await plain.acquire(mine).reply).toMatchObject({ kind: "taken" });
    const plan = { record: recordOf(mine), expiresAtMs: Date.now() + 60_000 };
    const calls = scriptCallsOf(client);
    const records = () =>
      calls.flatMap(({ argv }) => argv.filter((arg) => arg === plan.record)).length;

    // While something is in flight, acquires and releases wait for the end of their turn.
    const busy = plain.acquire(commandOf()).reply;
    await endOfTicks();
    if (isAgain) store.complete(mine, plan);
    store.complete(mine, plan);
    const rivals = [plain, other].map((by) => by.acquire(onceOf({ ...mine, ownerId: "rival" })));
    await endOfTicks();
    expect(records()).toBe(isAgain ? 2 : 1);
    for (const { reply } of rivals) expect(await reply).toMatchObject({ kind: "completed" });
    await busy;
  },
);

/** What was asked for by now has run, and no answer of a server has been read. */
async function endOfTicks(): Promise<void> {
  for (let tick = 0; tick < 3; tick++) await new Promise<void>(process.nextTick);
}
