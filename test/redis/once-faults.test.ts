import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, describe, expect, test } from "vitest";
import { redisClients } from "../support/clients.ts";
import { freshUser } from "../support/ids.ts";
import { begun, never, submission } from "../support/once-call.ts";
import { recordKey } from "../support/submissions.ts";
import { until } from "../support/until.ts";
import { closeFixtures, isAcquire, isLookUp, openFixture } from "./fixture.ts";

afterEach(closeFixtures);

describe.each(redisClients)("once and a Redis in trouble, with $name", ({ connect }) => {
  test("a lost reply to the acquire: it runs, and once", async () => {
    const { lock, proxy } = await openFixture({ connect });
    const user = freshUser();
    const lost = proxy.loseReplyOnce(isAcquire);
    const first = await lock.once(user, submission, () => 7);
    await lost;
    expect(first).toEqual({ value: 7, replayed: false, ageMs: 0 });
    expect(await lock.once(user, submission, never)).toMatchObject({ value: 7, replayed: true });
  });

  test("no Redis: it does not run, and does not wait for waitMs", async () => {
    const { lock, proxy } = await openFixture({ connect, acquireTimeoutMs: 500 });
    proxy.swallowRequests(true);
    const from = performance.now();
    const call = lock.once(freshUser(), submission, never, { waitMs: 30_000 });
    await expect(call).rejects.toMatchObject({ code: "SUBMIT_LOCK_UNAVAILABLE", status: 503 });
    expect(performance.now() - from).toBeLessThan(5_000);
  });

  test("no Redis at the end of the work: the value comes after acquireTimeoutMs, its record later", async () => {
    const { lock, proxy, redis } = await openFixture({
      connect,
      ttlMs: 20_000,
      acquireTimeoutMs: 500,
    });
    const user = freshUser();
    const first = await begun(lock, user);
    await proxy.refuse(true);
    proxy.resetAll();
    const from = performance.now();
    first.end(7);
    expect(await first.result).toEqual({ value: 7, replayed: false, ageMs: 0 });
    const waitedMs = performance.now() - from;
    expect(waitedMs).toBeGreaterThanOrEqual(499);
    // The complete itself is reported after 2 × acquireTimeoutMs + ttlMs: 21 s.
    expect(waitedMs).toBeLessThan(10_000);
    await proxy.refuse(false);
    await until(() => redis.exists(recordKey(lock.keyFor(user))), { what: "the record" });
    expect(await lock.once(user, submission, never)).toMatchObject({ value: 7, replayed: true });
  });

  test("no Redis at the end of work that throws: its error comes after acquireTimeoutMs", async () => {
    const { lock, proxy } = await openFixture({ connect, acquireTimeoutMs: 500 });
    const error = new Error("out of stock");
    const call = lock.once(freshUser(), submission, () => {
      proxy.swallowRequests(true);
      throw error;
    });
    const from = performance.now();
    expect(await call.catch((reason: unknown) => reason)).toBe(error);
    expect(performance.now() - from).toBeLessThan(4_000);
  });

  test("a Redis that falls silent under a repeat that waits is no reason to wait for it", async () => {
    const { lock } = await openFixture({ connect });
    const { lock: other, proxy } = await openFixture({ connect, acquireTimeoutMs: 500 });
    const user = freshUser();
    const first = await begun(lock, user);
    const waiting = other.once(user, submission, never, { waitMs: 30_000 });
    const ended = waiting.catch((error: unknown) => error);
    await until(() => proxy.commands.some(isLookUp), { what: "a look-up" });
    const from = performance.now();
    proxy.swallowRequests(true);
    expect(await ended).toMatchObject({ code: "SUBMIT_LOCK_UNAVAILABLE", status: 503 });
    expect(performance.now() - from).toBeLessThan(5_000);
    first.end(7);
    await first.result;
  });

  test("a lost reply to a look-up does not end the wait", async () => {
    const { lock } = await openFixture({ connect });
    const { lock: other, proxy } = await openFixture({ connect });
    const user = freshUser();
    const first = await begun(lock, user);
    const waiting = other.once(user, submission, never, { waitMs: 30_000 });
    await until(() => proxy.commands.some(isLookUp), { what: "a look-up" });
    await proxy.loseReplyOnce(isLookUp);
    await sleep(300);
    first.end(7);
    expect(await waiting).toMatchObject({ value: 7, replayed: true });
    await first.result;
  });
});
