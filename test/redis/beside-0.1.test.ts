import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { RedisStore, type SubmitLock } from "../../src/index.ts";
import { type Asking, asking } from "../support/asking.ts";
import { closeClients, ioredis6, untilReady } from "../support/clients.ts";
import { freshUser } from "../support/ids.ts";
import { acquired, closeLocks, commandOf, leaseOf, openLock } from "../support/locks.ts";
import { observer } from "../support/observer.ts";
import { sharedRedisPort } from "../support/redis-server.ts";
import {
  answer,
  foundBy,
  onceOf,
  recordKey,
  recordOf,
  submissionOf,
  submit,
} from "../support/submissions.ts";
import { StoreOf01 } from "./store-of-0.1.ts";

const redis = observer();
let stores: { old: StoreOf01; now: RedisStore };
let old: Asking;
let now: Asking;
beforeEach(async () => {
  const connect = () => untilReady(ioredis6.connect(sharedRedisPort()));
  stores = { old: new StoreOf01(await connect()), now: new RedisStore(await connect()) };
  old = asking(stores.old);
  now = asking(stores.now);
});
afterEach(async () => {
  await closeLocks();
  closeClients();
});

describe("while a process of 0.1 holds, one of 0.2", () => {
  test.each([
    ["without a submission", commandOf],
    ["with one", onceOf],
  ])("is kept out (%s), and touches nothing", async (_what, make) => {
    const held = commandOf();
    expect(await old.acquire(held).reply).toMatchObject({ kind: "taken" });
    expect(await redis.get(held.key)).toBe(held.ownerId);
    const mine = make({ key: held.key });
    const record = recordOf(onceOf());
    const seen = async () => [await redis.get(held.key), await redis.send("PEXPIRETIME", held.key)];
    const was = await seen();
    const reply = await now.acquire(mine).reply;
    expect(reply).toMatchObject({ kind: "contended" });
    expect(reply).not.toMatchObject({ sameSubmission: true });
    expect(await now.extend(mine).reply).toMatchObject({ kind: "foreign" });
    expect(await now.release(mine).reply).toMatchObject({ kind: "foreign" });
    expect(await now.release(mine, Date.now() + 60_000).reply).toMatchObject({ kind: "foreign" });
    const late = onceOf({ key: held.key });
    const completed = now.complete(late, { record, expiresAtMs: Date.now() + 5_000 });
    expect(await completed.reply).toMatchObject({ kind: "late" });
    expect(await seen()).toEqual(was);
    expect(await old.extend(held).reply).toMatchObject({ kind: "done" });
    expect(await old.release(held).reply).toMatchObject({ kind: "done" });
  });

  test("still finds an answer that was kept before", async () => {
    const [lock, user] = [openLock({ store: stores.now }), freshUser()];
    await (await submissionOf(lock, user)).complete(answer);
    const held = await leaseOf(openLock({ store: stores.old }), user);
    expect(foundBy(await submit(lock, user))).toBe("order 7");
    expect(await held.release()).toBe("released");
  });
});

describe("while a process of 0.2 holds, one of 0.1", () => {
  test.each([
    ["a lock alone", commandOf],
    ["a submission", onceOf],
  ])("is kept out of %s, and touches nothing", async (_what, make) => {
    const held = make();
    expect(await now.acquire(held).reply).toMatchObject({ kind: "taken" });
    const was = await redis.get(held.key);
    const theirs = commandOf({ key: held.key });
    expect(await old.acquire(theirs).reply).toMatchObject({ kind: "contended" });
    expect(await old.extend(theirs).reply).toMatchObject({ kind: "foreign" });
    expect(await old.release(theirs).reply).toMatchObject({ kind: "foreign" });
    // Not even with the owner id itself.
    expect(await old.release(commandOf({ ...held })).reply).toMatchObject({ kind: "foreign" });
    expect(await redis.get(held.key)).toBe(was);
    expect(await now.release(held).reply).toMatchObject({ kind: "done" });
  });

  test("is kept out by a cooldown, and leaves it", async () => {
    const [lock, user] = [openLock({ store: stores.now }), freshUser()];
    const lease = await leaseOf(lock, user);
    await lease.release({ cooldownMs: 30_000 });
    const theirs = commandOf({ key: lease.key });
    expect(await old.acquire(theirs).reply).toMatchObject({ kind: "contended" });
    expect(await old.release(theirs).reply).toMatchObject({ kind: "foreign" });
    expect(await redis.get(lease.key)).toBe(`cooldown:${lease.ownerId}`);
  });

  test("leaves its records alone", async () => {
    const [lock, user] = [openLock({ store: stores.now }), freshUser()];
    const lease = await submissionOf(lock, user);
    await lease.complete(answer);
    const kept = await redis.dump(recordKey(lease.key));
    await openLock({ store: stores.old }).withLock(user, {}, () => {});
    expect(await redis.dump(recordKey(lease.key))).toEqual(kept);
  });
});

test("of the clicks on both versions never two run at a time, and no lease is taken away", async () => {
  const locks = [stores.old, stores.now, stores.old, stores.now].map((store) =>
    openLock({ store, ttlMs: 1_200, acquireTimeoutMs: 600 }),
  );
  const users = [freshUser(), freshUser()];
  const inside = new Map<string, number>();
  const ran = [0, 0];
  const violations: string[] = [];
  const until = performance.now() + 6_000;

  async function click(lock: SubmitLock, version: number, user: string): Promise<void> {
    const withId = version === 1 && Math.random() < 0.5;
    const attempt = withId
      ? await submit(lock, user, { id: freshUser(), retainMs: 2_000 })
      : await lock.acquire(user);
    // A busy machine may not answer in time.
    if (attempt.outcome === "contended" || attempt.outcome === "unavailable") return;
    const { lease } = acquired(attempt);
    ran[version] = (ran[version] ?? 0) + 1;
    const others = inside.get(user) ?? 0;
    if (others > 0) violations.push("two at a time");
    inside.set(user, others + 1);
    // Some work for longer than the TTL, so that each version's watchdog is at work.
    await sleep(Math.random() < 0.05 ? 1_600 : 10);
    if (lease.signal.aborted) violations.push("lost");
    inside.set(user, (inside.get(user) ?? 1) - 1);
    const ending = withId ? await lease.complete(answer) : await lease.release();
    if (!["recorded", "released", "unconfirmed"].includes(ending)) violations.push(ending);
  }

  const clicking = locks.flatMap((lock, i) =>
    users.map(async (user) => {
      while (performance.now() < until) {
        await click(lock, i % 2, user);
        await sleep(Math.random() * 10);
      }
    }),
  );
  await Promise.all(clicking);
  expect(violations).toEqual([]);
  for (const orders of ran) expect(orders).toBeGreaterThan(5);
});
