import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import type { LockCommand, SubmissionAttempt, SubmitLock } from "../../src/index.ts";
import { type Asking, asking } from "../support/asking.ts";
import { record } from "../support/channels.ts";
import { redisClients } from "../support/clients.ts";
import { freshUser } from "../support/ids.ts";
import { leaseOf } from "../support/locks.ts";
import { type KeyObserver, observer } from "../support/observer.ts";
import { type RedisServer, startRedis } from "../support/redis-server.ts";
import {
  answer,
  foundBy,
  onceOf,
  recordKey,
  recordOf,
  submissionOf,
  submit,
} from "../support/submissions.ts";
import { until } from "../support/until.ts";
import { closeFixtures, isAcquire, isRelease, openFixture, openHeld } from "./fixture.ts";

afterEach(closeFixtures);

const hour = 3_600_000;

/** Without a watchdog, and longer than a busy machine takes. */
const still = {
  ttlMs: 40_000,
  maxHoldMs: 40_000,
  acquireTimeoutMs: 20_000,
  commandTimeoutMs: 10_000,
};

/** A step of Redis' clock by an hour leaves the keys as this does: they are to last an hour longer. */
async function setBack(redis: KeyObserver, key: string): Promise<void> {
  expect(await redis.send("PEXPIRE", key, hour)).toBe(1);
}

async function free(lock: SubmitLock, user: string, reason = "ticket 4711"): Promise<unknown> {
  const found = await lock.inspect(user);
  if (found.state === "free") throw new Error("the user is free already");
  return await lock.free(user, { id: found.id, by: "anna", reason });
}

/** What keeps a user out, and the longest life that it is given. */
const ours: [
  name: string,
  leave: (lock: SubmitLock, user: string) => Promise<unknown>,
  ms: number,
][] = [
  ["lock", leaseOf, still.ttlMs],
  ["lock of a submission", (lock, user) => submissionOf(lock, user), still.ttlMs],
  [
    "cooldown",
    async (lock, user) => (await leaseOf(lock, user)).release({ cooldownMs: 30_000 }),
    60_000,
  ],
  [
    "tombstone",
    async (lock, user) => {
      await leaseOf(lock, user);
      await free(lock, user);
    },
    300_000,
  ],
  [
    'tombstone with the reason "foreign"',
    async (lock, user) => {
      await leaseOf(lock, user);
      await free(lock, user, "foreign");
    },
    300_000,
  ],
];

const attempts: [name: string, (lock: SubmitLock, user: string) => Promise<SubmissionAttempt>][] = [
  ["an acquire", (lock, user) => lock.acquire(user)],
  ["an acquire for a submission", (lock, user) => submit(lock, user, { id: "cart 8" })],
];

function lifeOf(attempt: SubmissionAttempt): number {
  if (attempt.outcome === "contended") return attempt.expiresInMs;
  throw new Error(`expected contended, got ${attempt.outcome}`);
}

describe.each(redisClients)(
  "rule 18: where Redis' clock was set back, with $name",
  ({ connect }) => {
    describe.each(attempts)("%s", (_name, attempt) => {
      test.each(ours)("gives a %s no more life than its own", async (_what, leave, mostMs) => {
        const { lock, redis } = await openFixture({ connect, ...still });
        const user = freshUser();
        await leave(lock, user);
        const key = lock.keyFor(user);
        await setBack(redis, key);
        const held = await redis.get(key);
        expect(await lock.inspect(user)).toMatchObject({ clockSetBack: true });
        expect(lifeOf(await attempt(lock, user))).toBe(mostMs);
        const leftMs = await redis.pttl(key);
        expect(leftMs).toBeLessThanOrEqual(mostMs);
        expect(leftMs).toBeGreaterThan(mostMs / 4);
        expect(await redis.get(key)).toBe(held);
        expect(await lock.inspect(user)).not.toHaveProperty("clockSetBack");
        await redis.send("DEL", key);
      });
    });

    test.each<[name: string, value: string]>([
      ["a UUID", randomUUID()],
      ["a UUID and a number", `${randomUUID()}:1:2000:3000:web-1::`],
      ["a text", "1"],
      ["the beginning of a cooldown", "cooldown:soon"],
      ["the beginning of a tombstone", "freed:me:anna:1:x"],
    ])("another lock's value, %s, is left alone", async (_what, value) => {
      const { lock, redis } = await openFixture({ connect, ...still });
      const user = freshUser();
      const key = lock.keyFor(user);
      await redis.send("SET", key, value, "PX", hour);
      const endsAt = await redis.send("PEXPIRETIME", key);
      for (const [, attempt] of attempts) {
        expect(lifeOf(await attempt(lock, user))).toBeGreaterThan(hour / 2);
      }
      expect(await redis.send("PEXPIRETIME", key)).toBe(endsAt);
      expect(await redis.get(key)).toBe(value);
      await redis.send("DEL", key);
    });

    test.each(["ticket 4711", "foreign"])(
      "the tombstone of another library's lock keeps that lock's life: %s",
      async (reason) => {
        const { lock, redis } = await openFixture({ connect, ...still });
        const user = freshUser();
        const key = lock.keyFor(user);
        await redis.send("SET", key, randomUUID(), "PX", hour);
        const endsAt = await redis.send("PEXPIRETIME", key);
        expect(await lock.inspect(user)).not.toHaveProperty("clockSetBack");
        await free(lock, user, reason);
        expect(await lock.inspect(user)).not.toHaveProperty("clockSetBack");
        expect(lifeOf(await lock.acquire(user))).toBeGreaterThan(hour / 2);
        expect(await redis.send("PEXPIRETIME", key)).toBe(endsAt);
        expect(await lock.inspect(user)).toMatchObject({ state: "freed", reason });
        await redis.send("DEL", key);
      },
    );
  },
);

describe("rule 18: a life that a clock has lengthened", () => {
  const times = { ttlMs: 6_000, acquireTimeoutMs: 3_000, commandTimeoutMs: 100 };

  test("is cut under a holder that is alive, and its lease goes on", async () => {
    const { lock, redis, user, lease } = await openHeld(times);
    await setBack(redis, lease.key);
    expect(lifeOf(await lock.acquire(user))).toBe(times.ttlMs);
    const from = performance.now();
    while (performance.now() - from < 1.2 * times.ttlMs) {
      expect(lease.signal.aborted).toBe(false);
      const [askedAt, remainingMs] = [performance.now(), lease.remainingMs()];
      const lifeMs = await redis.pttl(lease.key);
      // Counted from when the lease was asked: an extend may arrive while Redis answers.
      expect(lifeMs + performance.now() - askedAt).toBeGreaterThan(remainingMs);
      await sleep(50);
    }
    expect(await lease.release()).toBe("released");
  });

  test("is never lengthened: a shorter one stays", async () => {
    const { lock, redis, user, lease } = await openHeld(still);
    const { key } = lease;
    await redis.send("PEXPIRE", key, 5_000);
    const endsAt = await redis.send("PEXPIRETIME", key);
    expect(lifeOf(await lock.acquire(user))).toBeLessThanOrEqual(5_000 + 2);
    expect(await redis.send("PEXPIRETIME", key)).toBe(endsAt);
  });

  test("is cut by the person who frees the lock, too", async () => {
    const { lock, redis, user, lease } = await openHeld(still);
    const { key } = lease;
    await setBack(redis, key);
    expect(await free(lock, user)).toEqual({ outcome: "freed", freeInMs: still.ttlMs });
    expect(await redis.pttl(key)).toBeLessThanOrEqual(still.ttlMs + 2);
  });
});

describe("rule 18: a Redis that does not take every write", () => {
  let server: RedisServer;
  let redis: KeyObserver;
  beforeAll(async () => {
    server = await startRedis();
    redis = observer(server.port);
  });
  afterAll(() => server.stop());

  async function openStranded() {
    const { lock, user, lease } = await openHeld({ ...still, port: server.port });
    const { key } = lease;
    await setBack(redis, key);
    return { lock, user, key };
  }

  test("cuts a life that a clock has lengthened although its memory is full", async () => {
    const { lock, user, key } = await openStranded();
    await redis.send("CONFIG", "SET", "maxmemory", 1);
    for (const [, attempt] of attempts) {
      expect(lifeOf(await attempt(lock, user))).toBeLessThanOrEqual(still.ttlMs + 2);
    }
    expect(await redis.pttl(key)).toBeLessThanOrEqual(still.ttlMs + 2);
    await redis.send("CONFIG", "SET", "maxmemory", 0);
  });

  test("says as a replica what life it has read, and that the user is locked", async () => {
    const { lock, user } = await openStranded();
    await redis.send("REPLICAOF", "127.0.0.1", 1);
    for (const [, attempt] of attempts) {
      expect(lifeOf(await attempt(lock, user))).toBeGreaterThan(hour / 2);
    }
    await redis.send("REPLICAOF", "NO", "ONE");
  });
});

describe("rule 19: a cooldown that was stamped before Redis' clock was set back", () => {
  test.each<[string, (store: Asking, mine: LockCommand, untilMs: number) => Promise<string>]>([
    ["release", async (store, mine, untilMs) => (await store.release(mine, untilMs).reply).kind],
    [
      "complete",
      async (store, mine, cooldownUntilMs) => {
        const plan = { record: recordOf(mine), expiresAtMs: cooldownUntilMs, cooldownUntilMs };
        return (await store.complete(mine, plan).reply).kind;
      },
    ],
  ])("by a %s lasts for a minute at most, in every copy", async (_name, end) => {
    const { store, redis } = await openFixture();
    const [asked, mine] = [asking(store), onceOf()];
    const taken = await asked.acquire(mine).reply;
    if (taken.kind !== "taken") throw new Error(taken.kind);
    const untilMs = Math.floor(taken.storeTimeMs) + hour;
    for (let copy = 0; copy < 2; copy++) {
      expect(["done", "recorded"]).toContain(await end(asked, mine, untilMs));
      expect(await redis.get(mine.key)).toBe(`cooldown:${mine.ownerId}`);
      expect(await redis.pttl(mine.key)).toBeLessThanOrEqual(60_000 + 2);
    }
    await redis.send("DEL", mine.key);
  });
});

const payload = { fingerprint: "a payload" };
const otherPayload = { fingerprint: "another payload" };

type Attempt = (lock: SubmitLock, user: string) => Promise<unknown>;

/** Who is there before, what is attempted, and how it ends. */
const refusals: [
  name: string,
  before: (lock: SubmitLock, user: string) => Promise<unknown>,
  attempt: Attempt,
  ending: object,
][] = [
  [
    "another submission is in flight",
    (lock, user) => submissionOf(lock, user, { id: "cart 8" }),
    (lock, user) => submit(lock, user, payload),
    { outcome: "contended", sameSubmission: false },
  ],
  [
    "the same submission is in flight",
    (lock, user) => submissionOf(lock, user, payload),
    (lock, user) => submit(lock, user, payload),
    { outcome: "contended", sameSubmission: true },
  ],
  [
    "it is in flight with another payload",
    (lock, user) => submissionOf(lock, user, payload),
    (lock, user) => submit(lock, user, otherPayload),
    { outcome: "mismatched", inFlight: true },
  ],
  [
    "a lock without a submission is held",
    leaseOf,
    (lock, user) => submit(lock, user, payload),
    { outcome: "contended", sameSubmission: false },
  ],
  [
    "it was completed",
    async (lock, user) => (await submissionOf(lock, user, payload)).complete(answer),
    (lock, user) => submit(lock, user, payload),
    { outcome: "completed" },
  ],
  [
    "it was completed with another payload",
    async (lock, user) => (await submissionOf(lock, user, payload)).complete(answer),
    (lock, user) => submit(lock, user, otherPayload),
    { outcome: "mismatched", inFlight: false },
  ],
  [
    "a cooldown is not over",
    async (lock, user) => (await leaseOf(lock, user)).release({ cooldownMs: 60_000 }),
    (lock, user) => submit(lock, user, payload),
    { outcome: "contended", isCooldown: true },
  ],
  [
    "a submission is looked up that nobody knows",
    leaseOf,
    (lock, user) => lock.lookUp(user, { submission: { id: "cart 7" } }),
    { outcome: "none" },
  ],
  [
    "a submission is looked up that is in flight",
    (lock, user) => submissionOf(lock, user, payload),
    (lock, user) => lock.lookUp(user, { submission: { id: "cart 7", ...payload } }),
    { outcome: "in-flight" },
  ],
  [
    "a submission is looked up that was completed",
    async (lock, user) => (await submissionOf(lock, user, payload)).complete(answer),
    (lock, user) => lock.lookUp(user, { submission: { id: "cart 7", ...payload } }),
    { outcome: "completed" },
  ],
];

describe.each(redisClients)("rule 18: refused means untouched, with $name", ({ connect }) => {
  test.each(refusals)(
    "where %s, both keys are what they were",
    async (_name, before, attempt, ending) => {
      // No watchdog, which would give the lock its life back meanwhile.
      const { lock, redis } = await openFixture({
        connect,
        ttlMs: 60_000,
        maxHoldMs: 60_000,
        acquireTimeoutMs: 15_000,
        commandTimeoutMs: 5_000,
      });
      const user = freshUser();
      await before(lock, user);
      const keys = [lock.keyFor(user), recordKey(lock.keyFor(user))];
      // A dump has no expiry in it; this is the time at which the key expires, to the millisecond.
      const seen = () =>
        Promise.all(keys.flatMap((key) => [redis.dump(key), redis.send("PEXPIRETIME", key)]));
      const was = await seen();
      expect(await attempt(lock, user)).toMatchObject(ending);
      expect(await seen()).toEqual(was);
    },
  );
});

describe("rule 18: what an attempt that was refused has on its way is retired", () => {
  test.each<[name: string, first: object, second: object, ending: string]>([
    ["completed", payload, payload, "order 7"],
    ["mismatched", payload, otherPayload, "mismatched"],
  ])("%s", async (_name, first, second, ending) => {
    const { lock, proxy, redis } = await openFixture({ acquireTimeoutMs: 1_000 });
    const user = freshUser();
    await (await submissionOf(lock, user, first)).complete(answer);
    const retire = record("submit-lock:retire", lock.keyFor(user));
    const held = proxy.holdRequestOnce(isAcquire);
    const attempt: SubmissionAttempt = await submit(lock, user, second);
    await held;
    expect(foundBy(attempt)).toBe(ending);
    await until(() => retire.length > 0, { what: "the owner id to be retired" });
    expect(retire).toMatchObject([{ outcome: "final" }]);
    expect(proxy.commands.filter(isRelease).length).toBeGreaterThan(1);
    expect(await redis.exists(lock.keyFor(user))).toBe(false);
  });
});
