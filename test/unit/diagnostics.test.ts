import { channel } from "node:diagnostics_channel";
import { afterEach, expect, test } from "vitest";
import { MemoryStore, type SubmitLockChannels } from "../../src/index.ts";
import { acquireChannel } from "../../src/lock/channels.ts";
import { record } from "../support/channels.ts";
import { freshUser } from "../support/ids.ts";
import { closeLocks, leaseOf, openLock } from "../support/locks.ts";
import { until } from "../support/until.ts";

afterEach(closeLocks);

test("submit-lock:release tells the outcome, and how long the lock was held", async () => {
  const lock = openLock({ store: new MemoryStore() });
  const user = freshUser();
  const messages = record("submit-lock:release", `lock:submit:${user}`);
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
});

test("submit-lock:lost tells of a lease that was held for its longest", async () => {
  const lock = openLock({ store: new MemoryStore(), ttlMs: 4_000, maxHoldMs: 4_001 });
  const lease = await leaseOf(lock, freshUser());
  const messages = record("submit-lock:lost", lease.key);
  await until(() => messages.length > 0, { what: "the loss" });
  const { key, fencingToken } = lease;
  const durationMs = expect.any(Number);
  const keyPrefix = "lock:submit:";
  expect(messages).toEqual([{ key, keyPrefix, outcome: "max-hold", fencingToken, durationMs }]);
});

test("no message carries an owner id", async () => {
  const names = ["acquire", "release", "lost", "retire"] as const;
  const recordings = names.map((name) => record(`submit-lock:${name}`));
  const lock = openLock({ store: new MemoryStore(), ttlMs: 100, maxHoldMs: 100 });
  const [released, lost] = [await leaseOf(lock, freshUser()), await leaseOf(lock, freshUser())];
  await released.release();
  await until(() => lost.signal.aborted, { what: "the loss" });
  const all = JSON.stringify(recordings);
  expect(all).toContain(lost.key);
  for (const { ownerId } of [released, lost]) expect(all).not.toContain(ownerId);
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
