import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, describe, expect, test } from "vitest";
import {
  type AcquireRequest,
  type CompleteRequest,
  type LockStore,
  MemoryStore,
  type Submission,
  type UserId,
} from "../../src/index.ts";
import { identify } from "../../src/lock/submission.ts";
import { VirtualFixture } from "../lab/simulation/virtual-fixture.ts";
import { record } from "../support/channels.ts";
import { runChild, sourceUrl } from "../support/child.ts";
import { freshUser } from "../support/ids.ts";
import { acquired, closeLocks, leaseOf, openLock } from "../support/locks.ts";
import { until } from "../support/until.ts";

afterEach(closeLocks);

const submission: Submission = { id: "cart 7" };
const never = () => expect.fail("it ran");

describe("once is refused, and nothing runs, for", () => {
  test("a user id that is an object", async () => {
    const lock = openLock({ store: new MemoryStore() });
    const noUser = lock.once({} as UserId, submission, never);
    await expect(noUser).rejects.toMatchObject({ code: "SUBMIT_LOCK_INVALID_USER_ID" });
  });

  test("a store that keeps no records", async () => {
    const store: LockStore = Object.assign(new MemoryStore(), { complete: undefined });
    const call = openLock({ store }).once(freshUser(), submission, never);
    await expect(call).rejects.toMatchObject({ code: "SUBMIT_LOCK_INVALID_OPTION" });
    await expect(call).rejects.toThrow("expected a lock whose store keeps answers");
  });
});

test("withLock says whether a cooldown kept it out", async () => {
  const [lock, user] = [openLock({ store: new MemoryStore() }), freshUser()];
  await lock.withLock(user, async (lease) => {
    await lease.release({ cooldownMs: 5_000 });
  });
  const error = await lock.withLock(user, never).catch((reason: unknown) => reason);
  expect(error).toMatchObject({ code: "SUBMIT_LOCK_CONTENDED", isCooldown: true, hasEnded: false });
});

test("a lease without a submission keeps no answer, and can be released after that was tried", async () => {
  const [lock, user] = [openLock({ store: new MemoryStore() }), freshUser()];
  const lease = await leaseOf(lock, user);
  const complete = () => lease.complete({ status: 201 });
  for (let time = 0; time < 2; time++) {
    expect(complete).toThrow("expected a lease of acquire(userId, { submission })");
  }
  expect(await lease.release()).toBe("released");
  expect(await lock.inspect(user)).toEqual({ state: "free" });
});

test("a look-up with another fingerprint is mismatched, in flight and completed", async () => {
  const [lock, user] = [openLock({ store: new MemoryStore() }), freshUser()];
  const look = () => lock.lookUp(user, { submission: { ...submission, fingerprint: "7 pieces" } });
  const mine = { submission: { ...submission, fingerprint: "1 piece" } };
  const { lease } = acquired(await lock.acquire(user, mine));
  expect(await look()).toEqual({ outcome: "mismatched", inFlight: true });
  await lease.complete({ status: 201 });
  expect(await look()).toEqual({ outcome: "mismatched", inFlight: false });
});

test("whoever waits for a run that tells an HTTP answer gets no value, and runs nothing", async () => {
  const [lock, user] = [openLock({ store: new MemoryStore() }), freshUser()];
  const { lease } = acquired(await lock.acquire(user, { submission }));
  const waiting = lock.once(user, submission, never, { waitMs: 5_000 }).catch((reason) => reason);
  await until(() => lock.stats().waiting === 1, { what: "the wait" });
  await lease.release({ told: { status: 402, body: "declined" } });
  const code = "SUBMIT_LOCK_CONTENDED";
  expect(await waiting).toMatchObject({ code, hasEnded: true, sameSubmission: true });
});

test("repeats that wait together get a value each, to change as they like", async () => {
  const [lock, user] = [openLock({ store: new MemoryStore() }), freshUser()];
  await lock.once(user, submission, () => ({ cents: 12_900 }));
  const inEuros = async () => {
    const { value } = await lock.once<{ cents: number }>(user, submission, never);
    value.cents /= 100;
    return value.cents;
  };
  expect(await Promise.all([inEuros(), inEuros(), inEuros()])).toEqual([129, 129, 129]);
});

test("a store that answers at once leaves no attempt for later calls to share", async () => {
  const [lock, user] = [openLock({ store: new MemoryStore() }), freshUser()];
  const { id } = identify(user, submission);
  const place = async () => (await lock.once(user, submission, () => "placed")).replayed;
  expect([await place(), await place()]).toEqual([false, true]);
  await lock.forget(user, { id, by: "alice", reason: "a wrong answer" });
  expect(await place()).toBe(false);
});

describe("two clicks at once, on a store that answers late", () => {
  /** Executes an acquire `ms` after it was written; never, once it is silent. */
  class LateStore extends MemoryStore {
    isSilent = false;
    readonly #ms: number;

    constructor(ms: number) {
      super();
      this.#ms = ms;
    }

    override acquire(request: AcquireRequest): void {
      if (!this.isSilent) setTimeout(() => super.acquire(request), this.#ms);
    }

    override complete(request: CompleteRequest): void {
      if (!this.isSilent) super.complete(request);
    }
  }

  const open = (ms: number, acquireTimeoutMs: number) => {
    const store = new LateStore(ms);
    const times = { acquireTimeoutMs, commandTimeoutMs: acquireTimeoutMs / 2 };
    return { store, lock: openLock({ store, ...times }) };
  };

  test("are one run, however much of its time the first attempt took", async () => {
    const [{ lock }, user, outages] = [
      open(3_000, 5_000),
      freshUser(),
      record("submit-lock:store"),
    ];
    let runs = 0;
    const click = () => lock.once(user, submission, () => ++runs, { waitMs: 30_000 });
    const values = await Promise.all([click(), sleep(20).then(click)]);
    expect(values.map(({ value }) => value)).toEqual([1, 1]);
    expect(outages).toEqual([]);
  });

  test("share an attempt, and a repeat of what this process runs is known in an outage", async () => {
    const [{ lock, store }, user] = [open(100, 1_000), freshUser()];
    const asked = { identity: { id: "x".repeat(22), fingerprint: undefined } };
    const clicks = [1, 2, 3].map(() => lock.acquireOrWait(user, asked, 0));
    const sameSubmission = { outcome: "contended", sameSubmission: true };
    const seen = [{ outcome: "acquired" }, sameSubmission, sameSubmission];
    expect(await Promise.all(clicks)).toMatchObject(seen);
    store.isSilent = true;
    const isRepeat = { outcome: "unavailable", isRepeat: true };
    expect(await lock.acquireOrWait(user, asked, 0)).toMatchObject(isRepeat);
    const other = { identity: { id: "y".repeat(22), fingerprint: undefined } };
    expect(await lock.acquireOrWait(user, other, 0)).not.toHaveProperty("isRepeat");
  });

  test("the answer of a run is known in an outage until it is recorded", async () => {
    const store = new LateStore(0);
    const times = { ttlMs: 400, acquireTimeoutMs: 100, commandTimeoutMs: 50 };
    const [lock, user] = [openLock({ store, ...times }), freshUser()];
    const asked = { identity: { id: "x".repeat(22), fingerprint: undefined } };
    const attempt = await lock.acquireOrWait(user, asked, 0);
    store.isSilent = true;
    // Behind this, the lease is extended no more.
    if (attempt.outcome === "acquired") await attempt.lease.complete({ status: 201 });
    await sleep(200);
    const isRepeat = { outcome: "unavailable", isRepeat: true };
    expect(await lock.acquireOrWait(user, asked, 0)).toMatchObject(isRepeat);
  });

  test("a caller whose isAbandoned throws is alone with its error", async () => {
    const [{ lock }, user] = [open(0, 1_000), freshUser()];
    const asked = { identity: { id: "x".repeat(22), fingerprint: undefined } };
    const first = await lock.acquireOrWait(user, asked, 0);
    const waiting = lock.acquireOrWait(user, asked, 30_000);
    const failing = lock.acquireOrWait(user, asked, 30_000, () => {
      throw new Error("of the caller");
    });
    await expect(failing).rejects.toThrow("of the caller");
    if (first.outcome === "acquired") await first.lease.complete({ status: 201 });
    expect(await waiting).toMatchObject({ outcome: "completed", answer: { status: 201 } });
  });

  test("wait on where a look's connection is lost long after other looks were answered", async () => {
    let looks = 0;
    const store = new (class extends MemoryStore {
      override acquire(request: AcquireRequest): void {
        const cause = new Error("the connection closed");
        const lose = () => request.answer({ kind: "unknown", cause });
        if (request.onlyLooks && ++looks === 1) setTimeout(lose, 700);
        else super.acquire(request);
      }
    })();
    const lock = openLock({ store, acquireTimeoutMs: 400, commandTimeoutMs: 100 });
    const user = freshUser();
    const first = lock.once(user, submission, () => sleep(1_200).then(() => "placed"));
    const repeat = lock.once(user, submission, never, { waitMs: 10_000 });
    expect(await repeat).toMatchObject({ value: "placed", replayed: true });
    await first;
  });
});

describe("rule 14: close", () => {
  test("it ends within its bounds when Redis is silent", async () => {
    const fixture = new VirtualFixture({ acquireTimeoutMs: 300 });
    await fixture.pass(10);
    const held = await fixture.run(() => leaseOf(fixture.lock, "held"));
    const released = await fixture.run(() => leaseOf(fixture.lock, "released"));
    const signal = fixture.look(() => held.signal);
    fixture.server.machine.pause(1_000_000);
    const from = fixture.now;
    await fixture.run(() => {
      void released.release();
      return fixture.lock.close({ timeoutMs: 100 });
    });
    // What is held has 100 ms, and what is retired as long as any of its requests could be late.
    expect(fixture.now - from).toBeGreaterThanOrEqual(699);
    expect(fixture.now - from).toBeLessThan(720);
    expect(fixture.look(() => signal.reason)).toMatchObject({ reason: "closed" });
  });

  test("a lease that nobody released keeps no process alive", async () => {
    const { code, stdout } = await runChild(`
      const { MemoryStore, SubmitLock } = await import(${JSON.stringify(sourceUrl("index.ts"))});
      await new SubmitLock({ store: new MemoryStore() }).acquire("42");
      console.log("held");`);
    expect({ code, stdout }).toEqual({ code: 0, stdout: "held\n" });
  });
});
