import { afterEach, describe, expect, test } from "vitest";
import { record } from "../support/channels.ts";
import { redisClients } from "../support/clients.ts";
import { freshUser } from "../support/ids.ts";
import { acquired, leaseOf } from "../support/locks.ts";
import { observer } from "../support/observer.ts";
import { until } from "../support/until.ts";
import {
  block,
  closeFixtures,
  isAcquire,
  openDirect,
  openFixture,
  openHeld,
  ownersOf,
  patient,
  takePulse,
} from "./fixture.ts";

afterEach(closeFixtures);

describe("rule 1: one owner id for one attempt", () => {
  test("each try of a waiting withLock is a new attempt", async () => {
    const { lock, proxy, user, lease } = await openHeld(patient);
    const from = proxy.commands.length;
    const tries = () => proxy.commands.slice(from).filter(isAcquire);
    const waiting = lock.withLock(user, { waitMs: 60_000 }, () => {});
    await until(() => tries().length > 2, { what: "three tries" });
    await lease.release();
    await waiting;
    const ids = new Set(tries().flatMap(ownersOf));
    expect(ids.size).toBe(tries().length);
  });

  test("the lease counts from before the copy waits in the batch of its turn", async () => {
    const { lock } = await openFixture();
    const attempt = lock.acquire(freshUser());
    block(50);
    const { lease } = acquired(await attempt);
    expect(lease.remainingMs()).toBeLessThanOrEqual(0.99 * 4_000 - 2 - 50);
    await lease.release();
  });
});

describe("rule 3: one verdict for one attempt", () => {
  test("a grant that is read too late is unavailable, and is taken back", async () => {
    const [lock, redis] = [await openDirect({ ttlMs: 20_000, acquireTimeoutMs: 100 }), observer()];
    const user = freshUser();
    const attempt = lock.acquire(user);
    // The copy goes out in this turn, and the process does not look up until the budget is over.
    await new Promise<void>((resolve) => process.nextTick(resolve));
    block(150);
    expect((await attempt).outcome).toBe("unavailable");
    await until(async () => !(await redis.exists(`lock:submit:${user}`)), {
      what: "the late grant to be taken back",
    });
  });

  test("a verdict of contended needs no second copy, and writes nothing", async () => {
    const { lock, proxy, redis, user, lease } = await openHeld(patient);
    const from = proxy.commands.length;
    expect((await lock.acquire(user)).outcome).toBe("contended");
    expect(proxy.commands.slice(from)).toHaveLength(1);
    expect(await redis.ownerOf(lease.key)).toBe(lease.ownerId);
    await lease.release();
  });
});

/** A budget that no test waits for, so that an answer well within it was not luck. */
const veryPatient = { ttlMs: 40_000, acquireTimeoutMs: 20_000 } as const;

describe.each(redisClients)("rule 4, P2: silence is confirmed, with $name", ({ connect }) => {
  test("a reply that was lost after Redis had applied it is confirmed on the other connection", async () => {
    const { lock, proxy, redis } = await openFixture({ ...veryPatient, connect });
    const user = freshUser();
    const acquire = record("submit-lock:acquire", `lock:submit:${user}`);
    const pulse = await takePulse();
    const lost = proxy.loseReplyOnce(isAcquire);
    const from = performance.now();
    const { lease, confirmed } = acquired(await lock.acquire(user));
    const tookMs = performance.now() - from;
    // The fixture's `commandTimeoutMs`, and what a second connection takes.
    expect(tookMs).toBeLessThan(pulse.atMost(300));
    await lost;
    expect(confirmed).toBe(true);
    expect(proxy.connections).toBe(2);
    // A copy after each `commandTimeoutMs` of 100 ms: how many depends on the machine.
    const copies = acquire[0]?.copies;
    expect(copies).toBeGreaterThan(1);
    expect(copies).toBeLessThanOrEqual(1 + Math.ceil(tookMs / 100));
    expect(await redis.ownerOf(lease.key)).toBe(lease.ownerId);
    expect(await lease.release()).toBe("released");
    expect(await redis.exists(lease.key)).toBe(false);
  });

  test("a connection that was reset is confirmed at once, not after commandTimeoutMs", async () => {
    const options = { ...veryPatient, commandTimeoutMs: 10_000, connect };
    const { lock, proxy, redis } = await openFixture(options);
    const pulse = await takePulse();
    const lost = proxy.loseReplyOnce(isAcquire, { resetAfterMs: 0 });
    const from = performance.now();
    const { lease, confirmed } = acquired(await lock.acquire(freshUser()));
    expect(performance.now() - from).toBeLessThan(pulse.atMost(200));
    await lost;
    expect(confirmed).toBe(true);
    expect(await lease.release()).toBe("released");
    // The client's own re-send may bring the key back, until the retire has asked again.
    await until(async () => !(await redis.exists(lease.key)), { what: "the key to be gone" });
  });

  test("a rival who holds the key is not taken for us by a confirm", async () => {
    const { lock, proxy, user, lease } = await openHeld({ ...veryPatient, connect });
    const lost = proxy.loseReplyOnce(isAcquire);
    expect((await lock.acquire(user)).outcome).toBe("contended");
    await lost;
    await lease.release();
  });
});

test("submit-lock:acquire tells how an attempt ended", async () => {
  const { lock, proxy } = await openFixture({ acquireTimeoutMs: 800, commandTimeoutMs: 400 });
  const user = freshUser();
  const key = lock.keyFor(user);
  const messages = record("submit-lock:acquire", key);
  const lease = await leaseOf(lock, user);
  await lock.acquire(user);
  await lease.release();
  proxy.holdRequests();
  await lock.acquire(user);
  const { fencingToken } = lease;
  const common = {
    key,
    keyPrefix: "lock:submit:",
    durationMs: expect.any(Number),
    copies: 1,
    confirmed: false,
    fencingToken: undefined,
    expiresInMs: undefined,
    cause: undefined,
  };
  expect(messages).toEqual([
    { ...common, outcome: "acquired", fencingToken },
    { ...common, outcome: "contended", expiresInMs: expect.any(Number) },
    { ...common, outcome: "unavailable", cause: expect.any(Error) },
  ]);
  expect(messages[1]?.expiresInMs).toBeGreaterThan(0);
  expect(messages[1]?.expiresInMs).toBeLessThanOrEqual(4_000);
  expect(messages[2]?.durationMs).toBeGreaterThanOrEqual(799);
});
