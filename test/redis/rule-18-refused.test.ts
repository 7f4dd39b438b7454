import { afterEach, describe, expect, test } from "vitest";
import type { SubmissionAttempt, SubmitLock } from "../../src/index.ts";
import { record } from "../support/channels.ts";
import { redisClients } from "../support/clients.ts";
import { freshUser } from "../support/ids.ts";
import { leaseOf } from "../support/locks.ts";
import { answer, foundBy, recordKey, submissionOf, submit } from "../support/submissions.ts";
import { until } from "../support/until.ts";
import { closeFixtures, isAcquire, isRelease, openFixture, patient } from "./fixture.ts";

afterEach(closeFixtures);

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
  [
    "a submission is looked up while the key is free",
    async () => {},
    (lock, user) => lock.lookUp(user, { submission: { id: "cart 7" } }),
    { outcome: "none" },
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

  test("and a replay that was answered at once costs one call and nothing behind it", async () => {
    const { lock, proxy } = await openFixture(patient);
    const user = freshUser();
    await (await submissionOf(lock, user)).complete(answer);
    const before = proxy.count("eval");
    expect(foundBy(await submit(lock, user))).toBe("order 7");
    await (await leaseOf(lock, freshUser())).release();
    expect(proxy.count("eval")).toBe(before + 3);
  });
});
