import { channel } from "node:diagnostics_channel";
import { afterEach, expect, test } from "vitest";
import { MemoryStore, type SubmitLockChannels } from "../../src/index.ts";
import { acquireChannel } from "../../src/lock/diagnostics.ts";
import { record } from "../support/channels.ts";
import { freshUser } from "../support/ids.ts";
import { acquired, closeLocks, leaseOf, openLock } from "../support/locks.ts";
import { until } from "../support/until.ts";
import { closeBenches, isAcquire, openBench } from "./fixture.ts";

afterEach(closeLocks);
afterEach(closeBenches);

test("submit-lock:acquire tells how an attempt ended", async () => {
  const { lock, proxy } = await openBench({ acquireTimeoutMs: 200 });
  const user = freshUser();
  const key = `lock:submit:${user}`;
  const { messages, stop } = record("submit-lock:acquire", key);
  const lease = await leaseOf(lock, user);
  await lock.acquire(user);
  await lease.release();
  proxy.holdRequests();
  await lock.acquire(user);
  const durationMs = expect.any(Number);
  expect(messages).toEqual([
    { key, outcome: "acquired", durationMs, copies: 1, cause: undefined },
    { key, outcome: "contended", durationMs, copies: 1, cause: undefined },
    { key, outcome: "unavailable", durationMs, copies: 1, cause: expect.any(Error) },
  ]);
  expect(messages[2]?.durationMs).toBeGreaterThanOrEqual(199);
  stop();
});

test("submit-lock:release tells the outcome, and how long the lock was held", async () => {
  const lock = openLock({ store: new MemoryStore() });
  const user = freshUser();
  const { messages, stop } = record("submit-lock:release", `lock:submit:${user}`);
  const lease = await leaseOf(lock, user);
  const at = performance.now() + 20;
  await until(() => performance.now() > at, { what: "20 ms of work" });
  await lease.release();
  await lease.release();
  expect(messages).toHaveLength(1);
  const { key, outcome, durationMs, heldMs } =
    messages[0] as SubmitLockChannels["submit-lock:release"];
  expect({ key, outcome }).toEqual({ key: lease.key, outcome: "released" });
  expect(heldMs).toBeGreaterThanOrEqual(20);
  expect(durationMs).toBeGreaterThanOrEqual(0);
  stop();
});

test("submit-lock:lost tells of a lease that was held for its longest", async () => {
  const lock = openLock({ store: new MemoryStore(), ttlMs: 1_000, maxHoldMs: 1_001 });
  const lease = await leaseOf(lock, freshUser());
  const { messages, stop } = record("submit-lock:lost", lease.key);
  await until(() => messages.length > 0, { what: "the loss" });
  const durationMs = expect.any(Number);
  expect(messages).toEqual([{ key: lease.key, outcome: "max-hold", durationMs }]);
  stop();
});

test("submit-lock:lost tells of a lease that could not be extended", async () => {
  const { lock, proxy } = await openBench({ ttlMs: 2_000, acquireTimeoutMs: 1_000 });
  const lease = await leaseOf(lock, freshUser());
  const { messages, stop } = record("submit-lock:lost", lease.key);
  proxy.swallowRequests(true);
  await until(() => messages.length > 0, { what: "the loss" });
  const durationMs = expect.any(Number);
  expect(messages).toEqual([{ key: lease.key, outcome: "expired", durationMs }]);
  stop();
});

test("submit-lock:retire tells of an owner id that had copies on their way", async () => {
  const { lock, proxy } = await openBench({ acquireTimeoutMs: 200 });
  const user = freshUser();
  const { messages, stop } = record("submit-lock:retire", `lock:submit:${user}`);
  const held = proxy.holdRequestOnce(isAcquire);
  const { lease } = acquired(await lock.acquire(user));
  await held;
  await lease.release();
  await until(() => messages.length > 0, { what: "the owner id to be retired" });
  expect(messages).toEqual([{ key: lease.key, outcome: "final", durationMs: expect.any(Number) }]);
  stop();
});

test("no message carries an owner id", async () => {
  const names = ["acquire", "release", "lost", "retire"] as const;
  const recordings = names.map((name) => record(`submit-lock:${name}`));
  const lock = openLock({ store: new MemoryStore(), ttlMs: 100, maxHoldMs: 100 });
  const [released, lost] = [await leaseOf(lock, freshUser()), await leaseOf(lock, freshUser())];
  await released.release();
  await until(() => lost.signal.aborted, { what: "the loss" });
  const all = JSON.stringify(recordings.map(({ messages }) => messages));
  expect(all).toContain(lost.key);
  for (const { ownerId } of [released, lost]) expect(all).not.toContain(ownerId);
  for (const { stop } of recordings) stop();
});

test("without listeners nothing is published", async () => {
  let published = 0;
  const publish = acquireChannel.publish;
  acquireChannel.publish = () => {
    published++;
  };
  const lock = openLock({ store: new MemoryStore() });
  await (await leaseOf(lock, freshUser())).release();
  acquireChannel.publish = publish;
  expect(acquireChannel.hasSubscribers).toBe(false);
  expect(published).toBe(0);
  // The channel is the one that any listener finds by its name.
  expect(channel("submit-lock:acquire")).toBe(acquireChannel);
});
