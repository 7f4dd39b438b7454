import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import {
  LockClosedError,
  LockContendedError,
  LockLostError,
  type LockStore,
  type SubmitLockOptions,
} from "../../src/index.ts";
import { asking } from "./asking.ts";
import { freshUser } from "./ids.ts";
import {
  acquired,
  causeOf,
  commandOf,
  extensions,
  leaseOf,
  openLock,
  roomyTimes,
} from "./locks.ts";
import { until } from "./until.ts";

/** What a lock does, whatever store it is on. */
export function carriesALock(open: () => LockStore): void {
  const lockWith = (options: Omit<SubmitLockOptions, "store"> = {}) =>
    openLock({ store: open(), ...options });

  test("the first attempt acquires, and the second is contended", async () => {
    const [lock, user] = [lockWith(), freshUser()];
    const first = acquired(await lock.acquire(user));
    expect(first).toMatchObject({ outcome: "acquired", confirmed: false });
    expect(first.lease.key).toBe(`lock:submit:${user}`);
    const second = await lock.acquire(user);
    expect(second).toEqual({
      outcome: "contended",
      expiresInMs: expect.any(Number),
      sameSubmission: false,
      isCooldown: false,
    });
    const { expiresInMs } = second as { expiresInMs: number };
    expect(expiresInMs).toBeGreaterThan(0);
    expect(expiresInMs).toBeLessThanOrEqual(10_000);
    await first.lease.release();
  });

  test("a release that nobody awaits is before the next attempt of the same turn", async () => {
    const [lock, user] = [lockWith(), freshUser()];
    const lease = await leaseOf(lock, user);
    const released = lease.release();
    const next = await leaseOf(lock, user);
    expect(await released).toBe("released");
    await next.release();
  });

  test("P1: of 50 attempts at once exactly one acquires", async () => {
    const [lock, user] = [lockWith(), freshUser()];
    const attempts = await Promise.all(Array.from({ length: 50 }, () => lock.acquire(user)));
    const outcomes = attempts.map(({ outcome }) => outcome);
    expect(outcomes.filter((outcome) => outcome === "acquired")).toHaveLength(1);
    expect(outcomes.filter((outcome) => outcome === "contended")).toHaveLength(49);
  });

  test("without a watchdog the lease ends with its TTL, and its holder hears of it before", async () => {
    const [lock, user] = [lockWith({ ttlMs: 1_600, maxHoldMs: 1_600 }), freshUser()];
    const lease = await leaseOf(lock, user);
    const { signal } = lease;
    await until(() => signal.aborted, { what: "the signal to abort" });
    expect(signal.reason).toBeInstanceOf(LockLostError);
    expect(signal.reason).toMatchObject({ code: "SUBMIT_LOCK_LOST", reason: "max-hold" });
    expect(lease.remainingMs()).toBe(0);
    const next = await lock.withLock(user, { waitMs: 10_000 }, ({ ownerId }) => ownerId);
    expect(next).not.toBe(lease.ownerId);
    // The next one's key may be there yet, where a busy machine has not heard of its release.
    expect(["gone", "foreign"]).toContain(await lease.release());
  });

  test("P5: the watchdog keeps a lease far longer than its TTL", async () => {
    // Two thirds of it are for a busy machine.
    const ttlMs = 6_000;
    const [lock, rival, user] = [lockWith({ ttlMs }), lockWith(), freshUser()];
    const lease = await leaseOf(lock, user);
    const end = performance.now() + 1.2 * ttlMs;
    while (performance.now() < end) {
      // A busy machine may not answer in time.
      expect(["contended", "unavailable"]).toContain((await rival.acquire(user)).outcome);
      expect(lease.remainingMs()).toBeGreaterThan(0);
      await sleep(200);
    }
    expect(lease.signal.aborted).toBe(false);
    expect(await lease.release()).toBe("released");
  });

  test("P4: a lease whose key somebody else has taken is lost, and its release leaves that key alone", async () => {
    const store = open();
    // A third of it passes until the watchdog sees the other key, and the rest is for a late machine.
    const lock = openLock({ store, ttlMs: 3_000 });
    const lease = await leaseOf(lock, freshUser());
    const { signal } = lease;
    const asked = asking(store);
    await asked.release(commandOf({ key: lease.key, ownerId: lease.ownerId })).reply;
    const rival = commandOf({ key: lease.key, times: roomyTimes });
    expect(await asked.acquire(rival).reply).toMatchObject({ kind: "taken" });
    await until(() => signal.aborted, { what: "the signal to abort" });
    expect(signal.reason).toMatchObject({ reason: "overtaken" });
    expect(await lease.release()).toBe("foreign");
    expect(await asked.acquire(rival).reply).toMatchObject({ kind: "mine" });
  });

  test("a second release gives the outcome of the first, and deletes nothing", async () => {
    const [lock, user] = [lockWith(), freshUser()];
    const lease = await leaseOf(lock, user);
    expect(await lease.release()).toBe("released");
    const next = await leaseOf(lock, user);
    expect(await lease.release()).toBe("released");
    expect((await lock.acquire(user)).outcome).toBe("contended");
    await next.release();
  });

  test("withLock passes the result on, and has given the lock back by then", async () => {
    const [lock, user] = [lockWith(), freshUser()];
    const result = await lock.withLock(user, {}, async (lease) => {
      expect((await lock.acquire(user)).outcome).toBe("contended");
      return lease.key;
    });
    expect(result).toBe(`lock:submit:${user}`);
    await (await leaseOf(lock, user)).release();
  });

  test("withLock passes the very error on that the work threw, and gives the lock back", async () => {
    const [lock, user] = [lockWith(), freshUser()];
    const error = new Error("out of stock");
    const thrown = await lock
      .withLock(user, {}, () => Promise.reject(error))
      .catch((reason: unknown) => reason);
    expect(thrown).toBe(error);
    await (await leaseOf(lock, user)).release();
  });

  test.each([{}, { waitMs: 150 }])(
    "withLock tries for waitMs, and no longer: %j",
    async (options) => {
      const [lock, user] = [lockWith(), freshUser()];
      const lease = await leaseOf(lock, user);
      const from = performance.now();
      const trying = lock.withLock(user, options, () => expect.fail("it ran"));
      const error = await trying.catch((reason: unknown) => reason);
      expect(error).toBeInstanceOf(LockContendedError);
      expect(error).toMatchObject({
        code: "SUBMIT_LOCK_CONTENDED",
        expiresInMs: expect.any(Number),
      });
      expect(performance.now() - from).toBeGreaterThanOrEqual((options.waitMs ?? 0) - 1);
      await lease.release();
    },
  );

  test("jobs of one user that wait never overlap", async () => {
    const [lock, user] = [lockWith(), freshUser()];
    let [inside, most] = [0, 0];
    const job = async () => {
      most = Math.max(most, ++inside);
      await sleep(5);
      inside--;
    };
    await Promise.all([1, 2, 3, 4].map(() => lock.withLock(user, { waitMs: 20_000 }, job)));
    expect(most).toBe(1);
  });

  test("a closed lock makes no attempt any more", async () => {
    const lock = lockWith();
    await lock.close();
    const cause = causeOf(await lock.acquire(freshUser()));
    expect(cause).toBeInstanceOf(LockClosedError);
    await expect(lock.check()).rejects.toBeInstanceOf(LockClosedError);
    const waiting = lock.withLock(freshUser(), { waitMs: 10_000 }, () => {});
    await expect(waiting).rejects.toMatchObject({ code: "SUBMIT_LOCK_CLOSED" });
  });

  test("close lets a live lease go on until it is released, its watchdog included", async () => {
    const [lock, user] = [lockWith({ ttlMs: 6_000 }), freshUser()];
    const lease = await leaseOf(lock, user);
    let closed = false;
    const closing = lock.close({ timeoutMs: 60_000 }).then(() => {
      closed = true;
    });
    await extensions(lease, 1);
    expect(closed).toBe(false);
    expect(lease.remainingMs()).toBeGreaterThan(0);
    expect(await lease.release()).toBe("released");
    await closing;
    expect(lease.signal.aborted).toBe(false);
  });

  test("a lease that outlives the bound of close is lost, and can still be released", async () => {
    const lock = lockWith();
    const lease = await leaseOf(lock, freshUser());
    const { signal } = lease;
    await Promise.all([lock.close({ timeoutMs: 20 }), lock.close()]);
    expect(signal.reason).toMatchObject({ code: "SUBMIT_LOCK_LOST", reason: "closed" });
    expect(lease.remainingMs()).toBe(0);
    expect(await lease.release()).toBe("released");
  });

  test("close waits for an attempt that is under way, and for the lease that it brings", async () => {
    const [lock, user] = [lockWith(), freshUser()];
    const attempt = lock.acquire(user);
    let closed = false;
    const closing = lock.close().then(() => {
      closed = true;
    });
    const { lease } = acquired(await attempt);
    await sleep(20);
    expect(closed).toBe(false);
    await lease.release();
    await closing;
  });

  test("an attempt that close did not wait for leaves no lock behind", async () => {
    const [lock, user] = [lockWith(), freshUser()];
    const attempt = lock.acquire(user);
    await lock.close({ timeoutMs: 0 });
    const ended = await attempt;
    // Whichever came first: a lease that was handed out before the bound is lost with it.
    if (ended.outcome === "acquired") {
      const { lease } = ended;
      expect(lease.signal.reason).toMatchObject({ code: "SUBMIT_LOCK_LOST", reason: "closed" });
      expect(lease.remainingMs()).toBe(0);
      expect(await lease.release()).toBe("released");
    } else {
      expect(causeOf(ended)).toBeInstanceOf(LockClosedError);
    }
    await openLock({ store: open() }).withLock(user, { waitMs: 5_000 }, () => {});
  });
}
