import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, describe, expect, onTestFinished, test, vi } from "vitest";
import {
  type Lease,
  LockLostError,
  MemoryStore,
  RedisStore,
  type SubmitLock,
} from "../../src/index.ts";
import { wallClock } from "../../src/time.ts";
import { Child, sourceUrl } from "../support/child.ts";
import { closeClients, ioredis6, untilReady } from "../support/clients.ts";
import { compiled } from "../support/compiled.ts";
import { freshUser } from "../support/ids.ts";
import { causeOf, closeLocks, leaseOf, openLock } from "../support/locks.ts";
import { observer } from "../support/observer.ts";
import { sharedRedisPort } from "../support/redis-server.ts";
import { until } from "../support/until.ts";
import { block, isAcquire, openFixture, openHeld } from "./fixture.ts";

afterEach(async () => {
  vi.restoreAllMocks();
  await closeLocks();
  closeClients();
});

const ttlMs = 1_000;
const times = { ttlMs, acquireTimeoutMs: 400, commandTimeoutMs: 200 };
const hour = 3_600_000;

async function onRedis(): Promise<SubmitLock> {
  const client = ioredis6.connect(sharedRedisPort());
  await untilReady(client);
  return openLock({ store: new RedisStore(client), ...times });
}

const stores = [
  ["Redis", onRedis],
  ["a MemoryStore", async () => openLock({ store: new MemoryStore(), ...times })],
] as const;

/** Each way to find out whether a lease is over, as a predicate. */
const looks: readonly (readonly [string, (lease: Lease, signal: AbortSignal) => boolean])[] = [
  ["signal.aborted of a signal that was taken before", (_, signal) => signal.aborted],
  ["signal.reason", (_, signal) => signal.reason instanceof LockLostError],
  ["throwIfAborted()", (_, signal) => throws(() => signal.throwIfAborted())],
  ["the signal, taken now", (lease) => lease.signal.aborted],
  ["remainingMs()", (lease) => lease.remainingMs() === 0],
  // From Node 26 on, it does not ask a signal that was taken before.
  [
    "AbortSignal.any() of the signal, taken now",
    (lease) => AbortSignal.any([lease.signal]).aborted,
  ],
  [
    "a fetch that is given the signal",
    (_, signal) => new Request("http://a", { signal }).signal.aborted,
  ],
];

function throws(call: () => void): boolean {
  try {
    call();
    return false;
  } catch (error) {
    return error instanceof LockLostError;
  }
}

function setWallClock(aheadMs: number): void {
  vi.spyOn(wallClock, "now").mockImplementation(() => Date.now() + aheadMs);
}

/** The wall clock goes on, and the monotonic one does not: the machine has slept. */
const sleepMachine = setWallClock;

describe.each(stores)("rule 7: on %s", (_store, open) => {
  test("behind a loop that was blocked, each look tells of the end", async () => {
    const lock = await open();
    const held = await Promise.all(
      looks.map(async ([how, isOver]) => {
        const lease = await leaseOf(lock, freshUser());
        return { how, lease, isOver: isOver.bind(undefined, lease, lease.signal) };
      }),
    );
    for (const { how, isOver } of held) expect(isOver(), how).toBe(false);
    // No timer and no answer of Redis has had its turn when the handler goes on.
    block(ttlMs + 50);
    for (const { how, lease, isOver } of held) {
      expect(isOver(), how).toBe(true);
      expect(lease.signal.reason).toMatchObject({ code: "SUBMIT_LOCK_LOST", reason: "expired" });
    }
  });

  test.each(looks)("on a machine that has slept, %s tells of the end", async (_how, isOver) => {
    const lease = await leaseOf(await open(), freshUser());
    const { signal } = lease;
    sleepMachine(hour);
    expect(isOver(lease, signal)).toBe(true);
  });

  test("a lease that was released or completed is not lost by a look", async () => {
    const lock = await open();
    const lease = await leaseOf(lock, freshUser());
    const { signal } = lease;
    const released = lease.release();
    sleepMachine(hour);
    expect(signal.aborted).toBe(false);
    await released;
  });

  test("a wall clock that is set back takes no lease, and gives none more time", async () => {
    const lease = await leaseOf(await open(), freshUser());
    sleepMachine(-hour);
    expect(lease.signal.aborted).toBe(false);
    block(ttlMs + 50);
    expect(lease.signal.aborted).toBe(true);
  });

  test("a wall clock that is set forward ends no key before its time (rule 19)", async () => {
    const lock = await open();
    const user = freshUser();
    const from = performance.now();
    const lease = await leaseOf(lock, user);
    sleepMachine(hour);
    expect(lease.signal.aborted).toBe(true);
    vi.restoreAllMocks();
    // The handler may not look at its signal: the next order must not run beside it at once.
    await lock.withLock(user, { waitMs: 20_000 }, () => {});
    expect(performance.now() - from).toBeGreaterThan(0.9 * ttlMs);
  });

  test("withLock and once hand on a lease that is judged in the same way", async () => {
    const lock = await open();
    const work = (lease: Lease) => {
      const before = lease.signal.aborted;
      block(ttlMs + 50);
      return [before, lease.signal.aborted];
    };
    expect(await lock.withLock(freshUser(), { waitMs: 10_000 }, work)).toEqual([false, true]);
    // It does not wait where a busy machine is late.
    const once = () =>
      lock.once(freshUser(), { id: "cart" }, work).catch((error) => {
        if (error.code !== "SUBMIT_LOCK_UNAVAILABLE") throw error;
        return undefined;
      });
    const { value } = await until(once, { what: "a run" });
    expect(value).toEqual([false, true]);
  });
});

test("rule 7: to log a lease is no look", async () => {
  const lease = await leaseOf(await onRedis(), freshUser());
  const told = vi.fn();
  lease.signal.addEventListener("abort", told);
  sleepMachine(hour);
  expect(JSON.stringify(lease)).toContain('"remainingMs":0');
  expect(told).not.toHaveBeenCalled();
});

/** How wrong the wall clock is, in ms, from when a lease has begun: each for half of `ttlMs`. */
const wrong: readonly (readonly [string, readonly number[]])[] = [
  ["forward, and back", [0.45 * ttlMs]],
  ["forward twice, and back", [0.45 * ttlMs, 0.9 * ttlMs]],
  ["back", [-hour]],
  ["back and forward", [-hour, 0.45 * ttlMs]],
];

test.each(wrong)(
  "rule 7: a wall clock that is set %s never makes a lease valid when its key has run out",
  async (_how, steps) => {
    const { lock, proxy, redis } = await openFixture({ ...times, maxHoldMs: 60_000 });
    const lease = await leaseOf(lock, freshUser());
    for (const aheadMs of steps) {
      setWallClock(aheadMs);
      await sleep(ttlMs / 2);
    }
    setWallClock(0);
    proxy.swallowRequests(true);
    const isFree = async () => !(await redis.exists(lease.key));
    await until(isFree, { what: "the lease to run out" });
    expect(lease.remainingMs()).toBe(0);
  },
);

test("rule 7: a wall clock that was set back hides no sleep of the machine", async () => {
  const lease = await leaseOf(await onRedis(), freshUser());
  setWallClock(-hour);
  expect(lease.remainingMs()).toBeGreaterThan(0);
  setWallClock(2 * ttlMs - hour);
  expect(lease.remainingMs()).toBe(0);
});

test("rule 7: a wall clock that was set forward and back hides no sleep behind it", async () => {
  const longer = { ttlMs: 2_000, maxHoldMs: 60_000 };
  const { lock } = await openFixture({ ...times, ...longer });
  const lease = await leaseOf(lock, freshUser());
  for (const part of [0.3, 0.6, 0.9, 0]) {
    setWallClock(part * longer.ttlMs);
    // With an extend.
    await sleep(0.4 * longer.ttlMs);
  }
  sleepMachine(1.2 * longer.ttlMs);
  expect(lease.remainingMs()).toBe(0);
});

test("rule 1: an answer that a machine reads when it has slept is no lease", async () => {
  const { lock, proxy } = await openFixture({ ttlMs: 2_000, acquireTimeoutMs: 1_000 });
  const user = freshUser();
  const held = proxy.holdReplyOnce(isAcquire);
  const attempt = lock.acquire(user);
  await held;
  sleepMachine(hour);
  proxy.releaseHeld();
  expect(causeOf(await attempt).name).toBe("LockUnavailableError");
});

test("P1: a process that is stopped beyond its lease, and wakes with its bank's answer, places nothing", async () => {
  const redis = observer(sharedRedisPort());
  const user = freshUser();
  const placed = `placed:${user}`;
  // The bank answers while the process is stopped: its answer is read before any timer has run.
  let answer = (): void => {};
  const bank = createServer((_request, response) => {
    answer = () => response.end("paid");
    bank.emit("asked");
  }).listen(0, "127.0.0.1");
  onTestFinished(() => void bank.close());
  await once(bank, "listening");
  const asked = once(bank, "asked");
  const { port: bankPort } = bank.address() as AddressInfo;
  const code = `
    import { Redis } from "ioredis";
    import { RedisStore, SubmitLock } from ${JSON.stringify(sourceUrl("index.ts"))};
    const client = new Redis(${sharedRedisPort()}, "127.0.0.1");
    const lock = new SubmitLock({ store: new RedisStore(client), ttlMs: ${ttlMs}, acquireTimeoutMs: 400, commandTimeoutMs: 200 });
    await lock.withLock(${JSON.stringify(user)}, { waitMs: 5_000 }, async ({ signal }) => {
      await (await fetch("http://127.0.0.1:${bankPort}/")).text();
      try {
        signal.throwIfAborted();
        await client.incr(${JSON.stringify(placed)});
        process.send({ ended: "placed" });
      } catch (error) {
        process.send({ ended: error.code });
      }
    });
    process.disconnect();
    client.disconnect();
  `;
  const child = new Child<{ ended: string }>(await compiled({ code }), []);
  onTestFinished(() => child.kill());
  const ended = child.next();
  await asked;
  child.signal("SIGSTOP");
  const key = `lock:submit:${user}`;
  const isFree = async () => (await redis.send("EXISTS", key)) === 0;
  await until(isFree, { what: "the lease to run out" });
  answer();
  // The second click of the same customer, at another process.
  const other = await leaseOf(await onRedis(), user);
  await redis.send("INCR", placed);
  await sleep(50);
  child.signal("SIGCONT");
  expect(await ended).toEqual({ ended: "SUBMIT_LOCK_LOST" });
  expect(await redis.send("GET", placed)).toBe("1");
  await other.release();
});

test.each([
  ["by less than the lease's rest", 10_000],
  ["beyond the lease's end", 45_000],
])("rule 19: a wall clock that is set forward %s makes no cooldown longer", async (_how, ms) => {
  const { lease, redis } = await openHeld({ ttlMs: 20_000 });
  setWallClock(ms);
  await lease.release({ cooldownMs: 1_000 });
  expect(Number(await redis.send("PTTL", lease.key))).toBeLessThanOrEqual(1_000);
});

test("rule 19: no cooldown is longer than was asked for, not by the rounding of a millisecond", async () => {
  const { lock, redis } = await openFixture({ ttlMs: 20_000 });
  const lives: number[] = [];
  for (let n = 0; n < 50; n++) {
    const lease = await leaseOf(lock, freshUser());
    await lease.release({ cooldownMs: 1_000 });
    lives.push(Number(await redis.send("PTTL", lease.key)));
  }
  expect(Math.max(...lives)).toBeLessThanOrEqual(1_000);
});
