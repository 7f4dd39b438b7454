import { afterEach, describe, expect, test } from "vitest";
import { type AcquireRequest, type Lease, type LockStore, MemoryStore } from "../../src/index.ts";
import { VirtualFixture } from "../lab/simulation/virtual-fixture.ts";
import { asking } from "../support/asking.ts";
import { freshUser } from "../support/ids.ts";
import { acquired, closeLocks, commandOf, leaseOf, openLock } from "../support/locks.ts";
import { until } from "../support/until.ts";

afterEach(closeLocks);

const times = { ttlMs: 3_000, acquireTimeoutMs: 1_000, commandTimeoutMs: 100 } as const;
/** Timers of a lock are coarse: a watchdog may wake a few milliseconds late. */
const tickMs = 15;
const never = 1_000_000;

async function held(fixture: VirtualFixture): Promise<Lease> {
  await fixture.pass(10);
  return await fixture.run(() => leaseOf(fixture.lock, "42"));
}

describe("rule 7: a lease is valid for what it was promised, in virtual time", () => {
  test("it is extended at each third of its TTL, until maxHoldMs is reached", async () => {
    const fixture = new VirtualFixture({ ...times, maxHoldMs: 10_000 });
    const lease = await held(fixture);
    const from = fixture.now;
    await fixture.passUntil(() => lease.signal.aborted);
    const extendedAt = fixture.writesOf("extend").map(({ atMs }) => atMs - from);
    expect(extendedAt).toHaveLength(7);
    for (const [i, at] of extendedAt.entries()) {
      expect(at).toBeGreaterThanOrEqual((i + 1) * 1_000 - 1);
      expect(at).toBeLessThan((i + 1) * (1_000 + tickMs));
    }
    expect(lease.signal.reason).toMatchObject({ reason: "max-hold" });
    // A tenth of the TTL before the end.
    expect(fixture.now - from).toBeGreaterThan(10_000 - 300 - tickMs);
    expect(fixture.now - from).toBeLessThan(10_000 - 300 + tickMs);
  });

  test("an extend counts from its own send, not from its answer", async () => {
    const fixture = new VirtualFixture({ ...times, commandTimeoutMs: 500 });
    const lease = await held(fixture);
    fixture.befalls("extend", { replyMs: 300 });
    await fixture.passUntil(() => fixture.writesOf("extend").length > 0);
    const before = fixture.look(() => lease.remainingMs());
    await fixture.passUntil(() => lease.remainingMs() > before);
    const age = fixture.now - (fixture.writesOf("extend")[0]?.atMs ?? Number.NaN);
    expect(age).toBeGreaterThan(300);
    expect(fixture.look(() => lease.remainingMs())).toBeCloseTo(0.99 * 3_000 - 2 - age, 3);
  });

  test.each<[what: string, happens: (fixture: VirtualFixture) => void, on: string]>([
    ["is silent", (fixture) => fixture.befalls("extend", { requestMs: never }), "second"],
    [
      "was away for a while",
      (fixture) => {
        fixture.cutOff(1_500);
        fixture.reset();
      },
      "first",
    ],
  ])("it goes on when its connection %s", async (_what, happens, on) => {
    const fixture = new VirtualFixture(times);
    const lease = await held(fixture);
    happens(fixture);
    await fixture.pass(20_000);
    expect(new Set(fixture.writesOf("extend").map((write) => write.on))).toContain(on);
    expect(fixture.look(() => lease.signal.aborted)).toBe(false);
    expect(fixture.server.look(lease.key)?.value).toMatch(new RegExp(`^${lease.ownerId}:`));
    expect(await fixture.run(() => lease.release())).toBe("released");
  });

  test("without an answer it is lost as expired, a tenth before another can have the key", async () => {
    const fixture = new VirtualFixture(times);
    const lease = await held(fixture);
    const from = fixture.now;
    fixture.server.machine.pause(never);
    await fixture.passUntil(() => lease.signal.aborted);
    expect(lease.signal.reason).toMatchObject({ code: "SUBMIT_LOCK_LOST", reason: "expired" });
    expect(fixture.now - from).toBeGreaterThan(0.99 * 3_000 - 2 - 300 - 1);
    expect(fixture.now - from).toBeLessThan(0.99 * 3_000 - 2 - 300 + tickMs);
    expect(fixture.server.look(lease.key)?.value).toMatch(new RegExp(`^${lease.ownerId}:`));
    expect(fixture.look(() => lease.remainingMs())).toBe(0);
  });

  test("lost is final, also when Redis is back and the key is still there", async () => {
    const fixture = new VirtualFixture(times);
    const lease = await held(fixture);
    fixture.server.machine.pause(2_800);
    await fixture.passUntil(() => lease.remainingMs() === 0);
    // Redis works through what has come meanwhile, extends of this lease among it.
    await fixture.passUntil(() => !fixture.server.machine.isPaused);
    expect(fixture.server.look(lease.key)?.value).toMatch(new RegExp(`^${lease.ownerId}:`));
    await fixture.pass(50);
    expect(fixture.look(() => lease.remainingMs())).toBe(0);
    // Made only now, and aborted from the beginning.
    expect(fixture.look(() => lease.signal.aborted)).toBe(true);
    await fixture.run(() => lease.release());
    await fixture.pass(50);
    expect(fixture.server.look(lease.key)).toBe(undefined);
  });

  test("a lease that was released is never lost, and its signal never aborts", async () => {
    const fixture = new VirtualFixture(times);
    const lease = await held(fixture);
    const signal = fixture.look(() => lease.signal);
    // The moment before the watchdog.
    await fixture.pass(999);
    const released = fixture.run(() => lease.release());
    expect(await released).toBe("released");
    await fixture.pass(20_000);
    expect(fixture.look(() => signal.aborted)).toBe(false);
    expect(fixture.writesOf("extend").length).toBeLessThanOrEqual(1);
  });
});

/** A store whose first copy is held up, and whose clock lets that copy take effect much later. */
class SlowFirstCopy extends MemoryStore implements LockStore {
  landHeldCopy: (() => void) | undefined;
  connectionCameUp: () => void = () => {};

  override acquire(copy: AcquireRequest): void {
    if (this.landHeldCopy !== undefined) {
      super.acquire(copy);
      return;
    }
    copy.deadlineMs = Number.POSITIVE_INFINITY;
    this.landHeldCopy = () => super.acquire(copy);
  }

  override attach(onReady?: () => void): () => Promise<void> {
    this.connectionCameUp = onReady ?? (() => {});
    return super.attach();
  }
}

test("rule 7: a lease whose late copy takes the key again after a rival is lost all the same", async () => {
  const store = new SlowFirstCopy();
  const times = { ttlMs: 1_000, acquireTimeoutMs: 500, commandTimeoutMs: 20 };
  const [lock, user] = [openLock({ store, ...times }), freshUser()];
  const { lease } = acquired(await lock.acquire(user));
  // The process stands still beyond its lease, so that no timer of it runs.
  const from = performance.now();
  while (performance.now() - from < 1_100);
  const rival = commandOf({ key: lease.key });
  const found = [asking(store).acquire(rival).reply, asking(store).release(rival).reply];
  store.landHeldCopy?.();
  // The extend is answered before the timer that would have told of the loss.
  store.connectionCameUp();
  expect((await Promise.all(found)).map(({ kind }) => kind)).toEqual(["taken", "done"]);
  await until(() => lease.signal.aborted, { what: "the holder to be told", boundMs: 300 });
  expect(lease.remainingMs()).toBe(0);
});
