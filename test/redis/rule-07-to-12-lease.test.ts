import { afterEach, describe, expect, onTestFinished, test } from "vitest";
import { RedisStore } from "../../src/index.ts";
import { wallClock } from "../../src/time.ts";
import { record } from "../support/channels.ts";
import { closeClient, isNodeRedis, redisClients } from "../support/clients.ts";
import { freshUser } from "../support/ids.ts";
import { acquired, leaseOf, openLock } from "../support/locks.ts";
import { forTest, startRedis } from "../support/redis-server.ts";
import { until } from "../support/until.ts";
import {
  block,
  closeFixtures,
  isAcquire,
  isExtend,
  isRelease,
  openDirect,
  openFixture,
  openHeld,
  patient,
  takePulse,
} from "./fixture.ts";

afterEach(closeFixtures);

/** What is a matter of time alone is tested in virtual time, in `test/unit`. */
describe("rule 7, P5: a lease is valid for what it was promised", () => {
  test("when a connection comes back, all leases are extended at once", async () => {
    const { lock, proxy } = await openFixture({ ttlMs: 30_000 });
    const leases = [await leaseOf(lock, freshUser()), await leaseOf(lock, freshUser())];
    proxy.resetAll();
    // Long before the watchdog, which comes after 10 s. Rule 24: the new connection was not asked yet.
    const from = performance.now();
    const extended = () =>
      proxy.commands.filter(isExtend).reduce((n, argv) => n + Number(argv[2]), 0);
    await until(() => extended() === 2, { what: "the extends after the reconnect" });
    expect(performance.now() - from).toBeLessThan(9_000);
    expect(await Promise.all(leases.map((lease) => lease.release()))).toEqual([
      "released",
      "released",
    ]);
  });

  test("a Redis that restarted empty has lost the lease, and its holder hears of it at once", async () => {
    const server = await forTest(startRedis());
    const { lease } = await openHeld({ port: server.port, ttlMs: 30_000 });
    const { signal } = lease;
    await server.restart();
    await until(() => signal.aborted, { what: "the signal to abort" });
    expect(signal.reason).toMatchObject({ reason: "overtaken" });
  });
});

describe.each(redisClients)(
  "rule 8, P3 and P4: the outcome of a release, with $name",
  ({ connect }) => {
    test.each([
      ["the connection stays", {}],
      ["the connection is reset", { resetAfterMs: 0 }],
    ])("released, although the first answer was lost: %s", async (_name, options) => {
      const { proxy, redis, lease } = await openHeld({ connect });
      const lost = proxy.loseReplyOnce(isRelease, options);
      const releasing = lease.release();
      await lost;
      expect(await releasing).toBe("released");
      expect(await redis.exists(lease.key)).toBe(false);
    });

    test("gone, and not released, when the lease was lost before: nothing vouches for it", async () => {
      const times = {
        ttlMs: 4_000,
        maxHoldMs: 4_000,
        acquireTimeoutMs: 2_000,
        commandTimeoutMs: 50,
      };
      const { proxy, lease } = await openHeld({ ...times, connect });
      // Of the compare-and-delete with which the lost lease itself ends.
      await proxy.loseReplyOnce(isRelease);
      expect(await lease.release()).toBe("gone");
    });

    test("unconfirmed, when Redis is silent; the key is deleted when it is back", async () => {
      const times = { ttlMs: 20_000, acquireTimeoutMs: 200, commandTimeoutMs: 50 };
      const { proxy, redis, lease } = await openHeld({ ...times, connect });
      const release = record("submit-lock:release", lease.key);
      const pulse = await takePulse();
      proxy.holdRequests();
      const from = performance.now();
      expect(await lease.release()).toBe("unconfirmed");
      expect(performance.now() - from).toBeLessThan(pulse.atMost(220));
      expect(release).toMatchObject([{ outcome: "unconfirmed" }]);
      expect(await redis.exists(lease.key)).toBe(true);
      proxy.releaseHeld();
      await until(async () => !(await redis.exists(lease.key)), {
        what: "the key to be deleted",
      });
    });

    test("unconfirmed, and no rejection, when the application has closed its client before", async () => {
      const times = { ttlMs: 1_000, acquireTimeoutMs: 100, commandTimeoutMs: 50 };
      const { client, redis, lease } = await openHeld({ ...times, connect });
      closeClient(client);
      expect(await lease.release()).toBe("unconfirmed");
      await redis.send("DEL", lease.key);
    });
  },
);

describe.each(redisClients)("rule 10: our own timers, with $name", ({ name, connect }) => {
  test("after a blocked event loop the answer is read before the timer is believed", async () => {
    const lock = await openDirect({ ...patient, commandTimeoutMs: 50 }, connect);
    for (let round = 0; round < 2; round++) {
      const user = freshUser();
      const acquire = record("submit-lock:acquire", `lock:submit:${user}`);
      const attempt = lock.acquire(user);
      // The call goes out in this turn.
      await new Promise((resolve) => setImmediate(resolve));
      // node-redis writes it at the end of its turn.
      if (isNodeRedis(name)) await new Promise((resolve) => setImmediate(resolve));
      // Long enough for an answer on a machine that is busy.
      block(1_500);
      const { lease, confirmed } = acquired(await attempt);
      expect(confirmed).toBe(false);
      expect(acquire).toMatchObject([{ outcome: "acquired", copies: 1 }]);
      await lease.release();
    }
  });

  test("an attempt ends although the client never settles its promise", async () => {
    // Known of ioredis: with this option a command in flight is forgotten at a reconnect.
    const clientOptions = { autoResendUnfulfilledCommands: false };
    const { lock, proxy } = await openFixture({ connect, clientOptions });
    const lost = proxy.loseReplyOnce(isAcquire, { resetAfterMs: 0 });
    const { lease, confirmed } = acquired(await lock.acquire(freshUser()));
    await lost;
    expect(confirmed).toBe(true);
    const lostToo = proxy.loseReplyOnce(isRelease, { resetAfterMs: 0 });
    expect(await lease.release()).toBe("released");
    await lostToo;
  });
});

describe("rule 12: a wrong clock costs one more request for each client, and nothing else", () => {
  test.each([
    ["an hour ahead", 3_600_000, 2],
    ["an hour behind", -3_600_000, 2],
    ["right", 0, 1],
  ])("of a process whose clock is %s", async (_name, skewMs, firstCopies) => {
    const { now } = wallClock;
    wallClock.now = () => now() + skewMs;
    onTestFinished(() => {
      wallClock.now = now;
    });
    const { client, lock, redis } = await openFixture(patient);
    const user = freshUser();
    const acquires = record("submit-lock:acquire", lock.keyFor(user));
    for (let i = 0; i < 3; i++) {
      const { confirmed, lease } = acquired(await lock.acquire(user));
      expect(confirmed).toBe(false);
      expect((await lock.acquire(user)).outcome).toBe("contended");
      expect(await lease.release()).toBe("released");
    }
    // The clock is the server's, and so that of every store on the client.
    const other = openLock({ store: new RedisStore(client), ...patient });
    await other.withLock(user, {}, () => {});
    expect(acquires.map(({ copies }) => copies)).toEqual([firstCopies, 1, 1, 1, 1, 1, 1]);
    expect(await redis.exists(lock.keyFor(user))).toBe(false);
  });
});
