import { afterEach, expect, test } from "vitest";
import type { StoreMessage, SubmitLock, SubmitLockOptions } from "../../src/index.ts";
import { instrument } from "../../src/opentelemetry/index.ts";
import { record } from "../support/channels.ts";
import { freshUser } from "../support/ids.ts";
import { leaseOf } from "../support/locks.ts";
import { Telemetry } from "../support/telemetry.ts";
import { until } from "../support/until.ts";
import { closeFixtures, openFixture, takePulse } from "./fixture.ts";

afterEach(closeFixtures);

const brief = { ttlMs: 3_000, acquireTimeoutMs: 400, commandTimeoutMs: 100 } as const;

/** A lock, and the messages about its own outages alone. */
async function openSeen(times: Partial<SubmitLockOptions> = brief) {
  const keyPrefix = `lock:${freshUser()}:`;
  const all = record("submit-lock:store");
  const seen = () => all.filter((message) => message.keyPrefix === keyPrefix);
  return { ...(await openFixture({ ...times, keyPrefix })), keyPrefix, seen };
}

const summary = (messages: readonly StoreMessage[]) =>
  messages.map(({ outcome }) => outcome).join();

async function untilBack(lock: SubmitLock): Promise<void> {
  const isBack = async () => (await lock.acquire(freshUser())).outcome === "acquired";
  await until(isBack, { what: "Redis to be back", boundMs: 20_000 });
}

test("an outage is told once at its first unavailable attempt, and once at its end", async () => {
  const { lock, proxy, seen } = await openSeen();
  proxy.holdRequests();
  const began = performance.now();
  for (let click = 0; click < 3; click++) {
    expect(await lock.acquire(freshUser())).toMatchObject({ outcome: "unavailable" });
  }
  expect(summary(seen())).toBe("away");
  expect(seen()[0]).toMatchObject({ cause: { code: "SUBMIT_LOCK_UNAVAILABLE" } });
  expect(seen()[0]?.durationMs).toBeGreaterThan(390);
  proxy.releaseHeld();
  await untilBack(lock);
  const backAt = performance.now();
  await until(() => seen().length === 2, { what: "the end", boundMs: 20_000 });
  expect(summary(seen())).toBe("away,back");
  // Its length ends with the answer, and not with the time in which nothing fails.
  expect(seen()[1]?.durationMs).toBeGreaterThan(1_190);
  expect(seen()[1]?.durationMs).toBeLessThanOrEqual(backAt - began + 1);
});

test("an answer ends no outage while other attempts fail, as on a Cluster that lacks a node", async () => {
  // The end is told 2 × acquireTimeoutMs behind an answer: half of it is for a busy machine.
  const times = { ttlMs: 6_000, acquireTimeoutMs: 3_000, commandTimeoutMs: 100 };
  const { lock, proxy, seen } = await openSeen(times);
  for (let round = 0; round < 2; round++) {
    proxy.holdRequests();
    expect(await lock.acquire(freshUser())).toMatchObject({ outcome: "unavailable" });
    proxy.holdRequests();
    const failing = lock.acquire(freshUser());
    await new Promise((resolve) => setTimeout(resolve, 2_500));
    proxy.releaseHeld();
    await failing;
  }
  expect(summary(seen())).toBe("away");
  // The last of them may have failed on a busy machine, and the end needs an answer.
  expect((await lock.acquire(freshUser())).outcome).toBe("acquired");
  await until(() => seen().length === 2, { what: "the end", boundMs: 20_000 });
});

test("a lease that cannot be extended tells it without any attempt", async () => {
  const { lock, proxy, seen } = await openSeen({ ...brief, ttlMs: 12_000 });
  const lease = await leaseOf(lock, freshUser());
  proxy.holdRequests();
  await until(() => seen().length === 1, { what: "the outage", boundMs: 20_000 });
  expect(seen()[0]).toMatchObject({ cause: { code: "SUBMIT_LOCK_UNAVAILABLE" } });
  expect(lease.signal.aborted).toBe(false);
  proxy.releaseHeld();
  await until(() => seen().length === 2, { what: "the end", boundMs: 20_000 });
  expect(summary(seen())).toBe("away,back");
  await lease.release();
});

test("a lock that is closed in an outage ends it", async () => {
  const { lock, proxy, seen } = await openSeen();
  proxy.holdRequests();
  await lock.acquire(freshUser());
  const late = lock.acquire(freshUser());
  expect(summary(seen())).toBe("away");
  await lock.close({ timeoutMs: 0 });
  await late;
  await lock.acquire(freshUser());
  expect(summary(seen())).toBe("away,back");
});

test("the length of an outage ends with the answer, also where the lock is closed then", async () => {
  const { lock, proxy, seen } = await openSeen();
  proxy.holdRequests();
  const began = performance.now();
  await lock.acquire(freshUser());
  proxy.releaseHeld();
  await untilBack(lock);
  const lengthMs = performance.now() - began;
  await new Promise((resolve) => setTimeout(resolve, 200));
  await lock.close({ timeoutMs: 0 });
  expect(summary(seen())).toBe("away,back");
  expect(seen()[1]?.durationMs).toBeLessThanOrEqual(lengthMs + 1);
});

test("check tells nothing, and a gauge says whether the store is away", async () => {
  const { keyPrefix, lock, proxy, seen } = await openSeen();
  const telemetry = new Telemetry();
  const { meterProvider, tracerProvider } = telemetry;
  const running = instrument({ locks: [lock], meterProvider, tracerProvider });
  const gauge = async () => {
    const counts = await telemetry.counts("submit_lock.store.away");
    return counts[JSON.stringify({ "submit_lock.key_prefix": keyPrefix })];
  };
  expect(await gauge()).toBe(0);
  proxy.holdRequests();
  const [pulse, checked] = [await takePulse(), performance.now()];
  await expect(lock.check()).rejects.toMatchObject({ code: "SUBMIT_LOCK_UNAVAILABLE" });
  expect(performance.now() - checked).toBeLessThan(pulse.atMost(1_200));
  expect([seen(), await gauge()]).toEqual([[], 0]);
  await lock.acquire(freshUser());
  expect(await gauge()).toBe(1);
  proxy.releaseHeld();
  await untilBack(lock);
  await until(async () => (await gauge()) === 0, { what: "the gauge", boundMs: 20_000 });
  running.disable();
  await telemetry.stop();
});
