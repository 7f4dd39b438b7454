import { afterEach, expect, test } from "vitest";
import { record } from "../support/channels.ts";
import { freshUser } from "../support/ids.ts";
import { acquired, leaseOf } from "../support/locks.ts";
import { until } from "../support/until.ts";
import { closeFixtures, isAcquire, openFixture, openHeld } from "./fixture.ts";

afterEach(closeFixtures);

test("submit-lock:acquire tells how an attempt ended", async () => {
  const { lock, proxy } = await openFixture({ acquireTimeoutMs: 800, commandTimeoutMs: 400 });
  const user = freshUser();
  const key = `lock:submit:${user}`;
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

test("submit-lock:lost tells of a lease that could not be extended", async () => {
  const { proxy, lease } = await openHeld({ ttlMs: 2_000, acquireTimeoutMs: 1_000 });
  const messages = record("submit-lock:lost", lease.key);
  proxy.swallowRequests(true);
  await until(() => messages.length > 0, { what: "the loss" });
  const { key, fencingToken } = lease;
  const durationMs = expect.any(Number);
  const keyPrefix = "lock:submit:";
  expect(messages).toEqual([{ key, keyPrefix, outcome: "expired", fencingToken, durationMs }]);
});

test("submit-lock:retire tells of an owner id that had copies on their way", async () => {
  const { lock, proxy } = await openFixture({ acquireTimeoutMs: 800 });
  const user = freshUser();
  const messages = record("submit-lock:retire", `lock:submit:${user}`);
  const held = proxy.holdRequestOnce(isAcquire);
  const { lease } = acquired(await lock.acquire(user));
  await held;
  const from = performance.now();
  await lease.release();
  await until(() => messages.length > 0, { what: "the owner id to be retired" });
  const { key } = lease;
  const durationMs = expect.any(Number);
  const keyPrefix = "lock:submit:";
  expect(messages).toEqual([{ key, keyPrefix, outcome: "final", durationMs }]);
  expect(messages[0]?.durationMs).toBeLessThanOrEqual(performance.now() - from);
});
