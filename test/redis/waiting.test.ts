import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, describe, expect, test } from "vitest";
import { RedisStore, type SubmitLock } from "../../src/index.ts";
import { mostWaiting } from "../../src/lock/repeats.ts";
import { closeClients, ioredis6, untilReady } from "../support/clients.ts";
import { freshUser } from "../support/ids.ts";
import { closeLocks, openLock } from "../support/locks.ts";
import { observer } from "../support/observer.ts";
import { forTest, startRedis } from "../support/redis-server.ts";
import { until } from "../support/until.ts";
import { executedScripts, openFixture } from "./fixture.ts";

afterEach(async () => {
  await closeLocks();
  closeClients();
});

const times = { ttlMs: 40_000, acquireTimeoutMs: 20_000, commandTimeoutMs: 10_000 } as const;
const cart = { id: "cart" };
const bodyBytes = 500_000;

async function open() {
  const server = await forTest(startRedis());
  const client = ioredis6.connect(server.port);
  await untilReady(client);
  const lock = openLock({ store: new RedisStore(client), ...times });
  return { lock, redis: observer(server.port) };
}

/** An order under way: the value that it returns is the body of all its repeats. */
function order(lock: SubmitLock, user: string) {
  let place!: (value: string) => void;
  const value = new Promise<string>((resolve) => {
    place = resolve;
  });
  let begun!: () => void;
  const hasBegun = new Promise<void>((resolve) => {
    begun = resolve;
  });
  const first = lock.once(user, cart, () => {
    begun();
    return value;
  });
  return { first, hasBegun, place };
}

const never = () => {
  throw new Error("a repeat has run");
};

/** As many repeats as may wait, when all of them do. */
async function allWait(lock: SubmitLock, user: string) {
  const repeats = Array.from({ length: mostWaiting.forOne }, () =>
    lock.once(user, cart, never, { waitMs: 30_000 }),
  );
  await until(() => lock.stats().waiting === mostWaiting.forOne, { what: "all to wait" });
  return repeats;
}

async function sentBytes(redis: ReturnType<typeof observer>): Promise<number> {
  const info = String(await redis.send("INFO", "stats"));
  return Number(/total_net_output_bytes:(\d+)/.exec(info)?.[1]);
}

describe("P6: what one customer repeats", () => {
  test("is looked for once for all who wait, and its answer is fetched once", async () => {
    const { lock, redis } = await open();
    const user = freshUser();
    const { first, hasBegun, place } = order(lock, user);
    await hasBegun;
    const repeats = await allWait(lock, user);
    const from = await executedScripts(redis);
    const at = performance.now();
    await until(() => performance.now() - at > 2_000, { what: "two seconds of waiting" });
    // A look every 125 ms or later: 16 in two seconds, and 1 000 if each looked for itself.
    expect((await executedScripts(redis)) - from).toBeLessThanOrEqual(20);
    const sent = await sentBytes(redis);
    place("x".repeat(bodyBytes));
    const answers = await Promise.all([first, ...repeats]);
    expect(new Set(answers.map(({ value }) => value.length))).toEqual(new Set([bodyBytes]));
    expect(answers.filter(({ replayed }) => replayed).length).toBe(mostWaiting.forOne);
    expect((await sentBytes(redis)) - sent).toBeLessThan(3 * bodyBytes);
    expect(lock.stats().waiting).toBe(0);
  });

  test("of a kept answer is fetched once for all that come meanwhile", async () => {
    const { lock, redis } = await open();
    const user = freshUser();
    await lock.once(user, cart, () => "x".repeat(bodyBytes));
    const sent = await sentBytes(redis);
    const repeats = Array.from({ length: 200 }, () => lock.once(user, cart, never));
    for (const { value } of await Promise.all(repeats)) expect(value).toHaveLength(bodyBytes);
    expect((await sentBytes(redis)) - sent).toBeLessThan(3 * bodyBytes);
  });

  test("is refused at once where more wait than may, and in flight it remains", async () => {
    const { lock, redis } = await open();
    const user = freshUser();
    const { first, hasBegun, place } = order(lock, user);
    await hasBegun;
    const repeats = await allWait(lock, user);
    await expect(lock.once(user, cart, never, { waitMs: 30_000 })).rejects.toMatchObject({
      code: "SUBMIT_LOCK_CONTENDED",
      sameSubmission: true,
      hasEnded: false,
    });
    // As the last look said: Redis is asked for none of a crowd.
    const asked = await executedScripts(redis);
    const crowd = Array.from({ length: 300 }, () =>
      lock.once(user, cart, never, { waitMs: 30_000 }).catch((error: unknown) => error),
    );
    for (const each of await Promise.all(crowd)) expect(each).toMatchObject({ status: 409 });
    expect((await executedScripts(redis)) - asked).toBeLessThan(20);
    // Others order and wait as ever.
    expect((await lock.once(freshUser(), cart, () => "another's")).value).toBe("another's");
    place("order 7");
    expect((await first).value).toBe("order 7");
    for (const repeat of repeats) expect((await repeat).value).toBe("order 7");
  });

  test("that other content was sent under an id is not told by a look for the right content", async () => {
    const { lock } = await open();
    const user = freshUser();
    let place!: () => void;
    const placed = new Promise<void>((resolve) => {
      place = resolve;
    });
    const first = lock.once(user, { ...cart, fingerprint: "a" }, () => placed);
    await until(() => lock.stats().held === 1, { what: "the order to begin" });
    const same = lock.once(user, { ...cart, fingerprint: "a" }, never, { waitMs: 30_000 });
    await until(() => lock.stats().waiting === 1, { what: "the repeat to wait" });
    const other = lock.once(user, { ...cart, fingerprint: "b" }, never, { waitMs: 30_000 });
    await expect(other).rejects.toMatchObject({ code: "SUBMIT_LOCK_MISMATCHED" });
    place();
    await first;
    expect((await same).replayed).toBe(true);
  });

  test("a caller that waits ends with its own time, also where others wait on", async () => {
    const { lock } = await open();
    const user = freshUser();
    const { first, hasBegun, place } = order(lock, user);
    await hasBegun;
    const long = lock.once(user, cart, never, { waitMs: 30_000 });
    const short = lock.once(user, cart, never, { waitMs: 200 });
    await expect(short).rejects.toMatchObject({ sameSubmission: true, hasEnded: false });
    place("order 7");
    expect((await long).value).toBe("order 7");
    await first;
  });

  test("a lock that is closed lets nobody wait", async () => {
    const { lock } = await open();
    const user = freshUser();
    const { first, hasBegun } = order(lock, user);
    await hasBegun;
    const waiting = lock.once(user, cart, never, { waitMs: 30_000 });
    await until(() => lock.stats().waiting === 1, { what: "the repeat to wait" });
    const refused = expect(waiting).rejects.toMatchObject({ code: "SUBMIT_LOCK_CLOSED" });
    void first.catch(() => {});
    await lock.close({ timeoutMs: 0 });
    await refused;
  });
});

test("P6: of many that wait for one user's lease, one asks Redis for all", async () => {
  const { lock, redis } = await open();
  const user = freshUser();
  let leave!: () => void;
  const left = new Promise<void>((resolve) => {
    leave = resolve;
  });
  const first = lock.withLock(user, () => left);
  await until(() => lock.stats().held === 1, { what: "the first to hold" });
  const done: number[] = [];
  const jobs = Array.from({ length: 40 }, (_, index) =>
    lock.withLock(user, { waitMs: 60_000 }, async () => {
      done.push(index);
    }),
  );
  const at = performance.now();
  await until(() => performance.now() - at > 500, { what: "the line to form" });
  const from = await executedScripts(redis);
  const since = performance.now();
  await until(() => performance.now() - since > 2_000, { what: "two seconds of waiting" });
  expect((await executedScripts(redis)) - from).toBeLessThanOrEqual(20);
  leave();
  await Promise.all([first, ...jobs]);
  // In the order in which they came.
  expect(done).toEqual(jobs.map((_, index) => index));
});

test("a repeat is told the value by a Redis that answers each look late", async () => {
  const { lock, proxy } = await openFixture({
    ttlMs: 20_000,
    acquireTimeoutMs: 5_000,
    commandTimeoutMs: 100,
  });
  const user = freshUser();
  const { first, hasBegun, place } = order(lock, user);
  await hasBegun;
  proxy.waitBeforeEachRequest(() => sleep(300));
  const repeat = lock.once(user, cart, never, { waitMs: 30_000 });
  await until(() => lock.stats().waiting === 1, { what: "the repeat to wait" });
  await sleep(1_000);
  place("7");
  expect(await repeat).toMatchObject({ value: "7", replayed: true });
  await first;
});
