import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, describe, expect, test } from "vitest";
import { wallClock } from "../../src/time.ts";
import { record } from "../support/channels.ts";
import { redisClients } from "../support/clients.ts";
import { freshUser } from "../support/ids.ts";
import { answer, foundBy, recordKey, submissionOf, submit } from "../support/submissions.ts";
import { until } from "../support/until.ts";
import { closeFixtures, isComplete, isExtend, openFixture, openOrder, patient } from "./fixture.ts";

afterEach(closeFixtures);

/** The least that an answer may be kept with these bounds is a second. */
const brief = { ttlMs: 4_000, acquireTimeoutMs: 2_000, commandTimeoutMs: 50 } as const;

describe.each(redisClients)("rule 15, P9: once, with $name", ({ connect }) => {
  test.each([
    ["the reply is lost", "loseReplyOnce", {}],
    ["the connection is reset after Redis has done it", "loseReplyOnce", { resetAfterMs: 0 }],
    ["the connection is reset before Redis has seen it", "resetBeforeOnce", {}],
    ["the reply is late", "holdReplyOnce", {}],
    ["the request is held", "holdRequestOnce", {}],
    ["the request outlives its connection", "holdRequestOnce", { resetClientAfterMs: 100 }],
  ] as const)("%s: it is recorded once, and found", async (_name, fault, options) => {
    const { lock, proxy, redis, user, lease } = await openOrder({ connect });
    const complete = record("submit-lock:complete", lock.keyFor(user));
    const struck = (proxy[fault] as (match: typeof isComplete, how: object) => Promise<void>)(
      isComplete,
      options,
    );
    const completing = lease.complete(answer);
    await struck;
    expect(await completing).toBe("recorded");
    expect(foundBy(await submit(lock, user))).toBe("order 7");
    expect(await redis.exists(lease.key)).toBe(false);
    const kept = await redis.get(recordKey(lease.key));
    // What was on its way lands.
    proxy.releaseHeld();
    await sleep(100);
    expect(await redis.get(recordKey(lease.key))).toBe(kept);
    expect(await redis.exists(lease.key)).toBe(false);
    const copies = proxy.commands.filter(isComplete);
    expect(copies.length).toBeGreaterThan(1);
    // The same text and the same expiry in every copy.
    expect(new Set(copies.map((argv) => argv.join(" "))).size).toBe(1);
    expect(complete).toMatchObject([{ outcome: "recorded", bodyDropped: false, cause: undefined }]);
  });
});

describe("rule 15, P9: a record", () => {
  test("is kept for retainMs by Redis' clock, however wrong the process' own is", async () => {
    const retainMs = 60_000;
    const { now } = wallClock;
    wallClock.now = () => now() - 3_600_000;
    const { lock, redis } = await openFixture().finally(() => {
      wallClock.now = now;
    });
    const lease = await submissionOf(lock, freshUser(), { retainMs });
    await lease.complete(answer);
    const left = await redis.pttl(recordKey(lease.key));
    // The machine's clock may be set back by a millisecond meanwhile.
    expect(left).toBeLessThanOrEqual(retainMs + 2);
    expect(left).toBeGreaterThan(retainMs - 20_000);
  });

  test("is kept for seven days at most, where the process' clock was set forward meanwhile", async () => {
    const { lock, redis } = await openFixture();
    const lease = await submissionOf(lock, freshUser(), { retainMs: 60_000 });
    const { now } = wallClock;
    // A machine without a clock of its own, in whose first order NTP begins.
    wallClock.now = () => now() + 56 * 365 * 86_400_000;
    await lease.complete(answer).finally(() => {
      wallClock.now = now;
    });
    const left = await redis.pttl(recordKey(lease.key));
    expect(left).toBeLessThanOrEqual(7 * 86_400_000);
    expect(left).toBeGreaterThan(60_000);
  });

  test("is answered with its age by Redis' clock", async () => {
    const { lock, user, lease } = await openOrder();
    const from = performance.now();
    await lease.complete(answer);
    await sleep(200);
    const attempt = await submit(lock, user);
    const { ageMs } = attempt as Extract<typeof attempt, { outcome: "completed" }>;
    expect(ageMs).toBeGreaterThanOrEqual(200 - 5);
    expect(ageMs).toBeLessThanOrEqual(performance.now() - from + 1_500);
  });

  test("that ran out is not brought back by a late copy", async () => {
    const { lock, proxy, client, redis } = await openFixture(brief);
    const lease = await submissionOf(lock, freshUser(), { retainMs: 5_000 });
    const held = proxy.holdRequestOnce(isComplete);
    const completing = lease.complete(answer);
    await held;
    expect(await completing).toBe("recorded");
    const kept = recordKey(lease.key);
    expect(await redis.exists(kept)).toBe(true);
    await until(async () => !(await redis.exists(kept)), { what: "the record to expire" });
    proxy.releaseHeld();
    // Answered after the copy that was sent before it.
    await client.ping();
    expect(await redis.exists(kept)).toBe(false);
    expect(await redis.exists(lease.key)).toBe(false);
  });
});

describe("rule 15, P9: a holder whose lease is gone", () => {
  test.each([
    ["and does not know it yet", false],
    ["and was told so", true],
  ])("%s records all the same, and is late", async (_name, isTold) => {
    const { lock, redis, user, lease } = await openOrder({ ttlMs: 9_000, acquireTimeoutMs: 4_000 });
    await redis.send("DEL", lease.key);
    if (isTold) {
      const { signal } = lease;
      await until(() => signal.aborted, { what: "the holder to be told" });
    }
    expect(await lease.complete(answer)).toBe("late");
    expect(foundBy(await submit(lock, user))).toBe("order 7");
    expect(await lease.release()).toBe("gone");
  });

  test("is a duplicate where the submission was run again: the first answer stays, and it is told", async () => {
    const { lock, redis, user, lease } = await openOrder();
    const duplicate = record("submit-lock:duplicate", lock.keyFor(user));
    const complete = record("submit-lock:complete", lock.keyFor(user));
    await redis.send("DEL", lease.key);
    const second = await submissionOf(lock, user);
    expect(await second.complete(answer)).toBe("recorded");
    expect(await lease.complete({ status: 201, body: "order 8" })).toBe("duplicate");
    expect(duplicate).toEqual([{ key: lease.key, keyPrefix: "lock:submit:" }]);
    expect(complete.map(({ outcome }) => outcome)).toEqual(["recorded", "duplicate"]);
    expect(foundBy(await submit(lock, user))).toBe("order 7");
  });
});

test("rule 15: an order with an id costs one call before the work and one after it, a replay one", async () => {
  const { lock, proxy } = await openFixture(patient);
  const user = freshUser();
  const before = proxy.count("eval");
  const lease = await submissionOf(lock, user);
  expect(proxy.count("eval")).toBe(before + 1);
  await lease.complete(answer);
  expect(proxy.count("eval")).toBe(before + 2);
  await submit(lock, user);
  expect(proxy.count("eval")).toBe(before + 3);
  expect(proxy.commands.some(isExtend)).toBe(false);
});
