import { describe, expect, test } from "vitest";
import { VirtualFixture } from "../lab/simulation/virtual-fixture.ts";
import { acquired, causeOf, leaseOf } from "../support/locks.ts";

/** A connection, its handshake and its ready check, a command, and the coarse timers of a lock. */
const aMomentMs = 12;
const never = 1_000_000;
const key = "lock:submit:42";

/** A lock with the default bounds that is connected. */
async function open(): Promise<VirtualFixture> {
  const fixture = new VirtualFixture();
  await fixture.pass(10);
  return fixture;
}

/** One attempt, and how long it took. */
async function attempt(fixture: VirtualFixture) {
  const from = fixture.now;
  const ended = await fixture.run(() => fixture.lock.acquire("42"));
  return { ended, tookMs: fixture.now - from };
}

describe("P2: a reply that was lost is confirmed", () => {
  test.each([
    ["the reply never comes", { replyMs: never }],
    ["the request never arrives", { requestMs: never }],
    ["the reply is later than the TTL", { replyMs: 11_000 }],
  ])("after commandTimeoutMs and a moment: %s", async (_what, fate) => {
    const fixture = await open();
    fixture.befalls("acquire", fate);
    const { ended, tookMs } = await attempt(fixture);
    expect(acquired(ended).confirmed).toBe(true);
    expect(tookMs).toBeLessThan(200 + aMomentMs);
  });

  test.each([
    ["before Redis has seen it", { requestMs: 50, resetMs: 0, stillLands: false }],
    ["after Redis has applied it", { replyMs: 50, resetMs: 5, stillLands: true }],
  ])("at once, when the connection is reset %s", async (_what, fate) => {
    const fixture = await open();
    fixture.befalls("acquire", fate);
    const { ended, tookMs } = await attempt(fixture);
    expect(acquired(ended).confirmed).toBe(true);
    expect(tookMs).toBeLessThan(fate.resetMs + 50 + aMomentMs);
  });

  test("whenever Redis answers a request within acquireTimeoutMs", async () => {
    const fixture = await open();
    fixture.server.machine.pause(980);
    const { ended, tookMs } = await attempt(fixture);
    expect(acquired(ended).confirmed).toBe(false);
    expect(tookMs).toBeLessThan(1_000);
  });
});

describe("P3: no orphan", () => {
  /** For how long in sum the key was there since. */
  async function keyThereMs(fixture: VirtualFixture, forMs: number): Promise<number> {
    let sum = 0;
    for (let i = 0; i < forMs; i++) {
      await fixture.pass(1);
      if (fixture.server.look(key) !== undefined) sum++;
    }
    return sum;
  }

  test("a late request brings the key back for 50 ms and a round trip at most", async () => {
    const fixture = await open();
    fixture.befalls("acquire", { requestMs: 700 });
    const { ended } = await attempt(fixture);
    const { lease } = acquired(ended);
    expect(await fixture.run(() => lease.release())).toBe("released");
    const orphanMs = await keyThereMs(fixture, 3_000);
    // It did come back.
    expect(orphanMs).toBeGreaterThan(0);
    expect(orphanMs).toBeLessThan(50 + aMomentMs);
  });

  test("a request that is later than its deadline brings nothing back", async () => {
    const fixture = await open();
    fixture.befalls("acquire", { requestMs: 1_100 });
    const { ended } = await attempt(fixture);
    const { lease } = acquired(ended);
    await fixture.run(() => lease.release());
    expect(await keyThereMs(fixture, 3_000)).toBe(0);
  });

  test("an attempt that was not acquired leaves nothing, however late its requests land", async () => {
    const fixture = await open();
    for (let i = 0; i < 5; i++) fixture.befalls("acquire", { requestMs: 1_050 - 200 * i });
    const { ended } = await attempt(fixture);
    expect(causeOf(ended)).toMatchObject({ code: "SUBMIT_LOCK_UNAVAILABLE" });
    expect(await keyThereMs(fixture, 5_000)).toBeLessThan(50 + aMomentMs);
    await fixture.run(() => leaseOf(fixture.lock, "42"));
  });
});

test("rule 6: behind errors a release is sent again at once, and then after 50, 100 and 200 ms", async () => {
  const fixture = await open();
  const { lease } = acquired((await attempt(fixture)).ended);
  for (let i = 0; i < 4; i++) fixture.befalls("release", { oddAnswer: true });
  expect(await fixture.run(() => lease.release())).toBe("released");
  const sentAt = fixture.writesOf("release").map(({ atMs }) => atMs);
  const pauses = sentAt.slice(1).map((at, index) => at - (sentAt[index] as number));
  expect(pauses).toHaveLength(4);
  for (const [index, least] of [0, 50, 100, 200].entries()) {
    expect(pauses[index]).toBeGreaterThanOrEqual(least);
    expect(pauses[index]).toBeLessThan(least + aMomentMs);
  }
});

describe("P6: an answer in time", () => {
  test("a silent Redis is unavailable after acquireTimeoutMs, and no later", async () => {
    const fixture = await open();
    fixture.server.machine.pause(never);
    const { ended, tookMs } = await attempt(fixture);
    expect(causeOf(ended)).toMatchObject({ code: "SUBMIT_LOCK_UNAVAILABLE" });
    expect(tookMs).toBeGreaterThanOrEqual(999);
    expect(tookMs).toBeLessThan(1_000 + aMomentMs);
  });

  test("a key that somebody else holds is contended after one round trip", async () => {
    const fixture = await open();
    await fixture.run(() => leaseOf(fixture.lock, "42"));
    const { ended, tookMs } = await attempt(fixture);
    expect(ended.outcome).toBe("contended");
    expect(tookMs).toBeLessThan(3);
  });
});

describe("P7: an outage", () => {
  test("of an hour has nothing queued up for a silent Redis, and orders flow after it", async () => {
    const fixture = await open();
    const hourMs = 3_600_000;
    fixture.server.machine.pause(hourMs);
    for (let i = 0; i < 100; i++) {
      const { ended } = await attempt(fixture);
      expect(ended.outcome).toBe("unavailable");
    }
    // Each connection gets what 180 ms bring, and is left alone until it answers; a second one that
    // is of no use is given up after 2 s for another.
    const writes = fixture.written.length;
    await fixture.passUntil(() => fixture.now > hourMs, hourMs);
    expect(writes).toBeLessThan(10);
    await fixture.pass(1_000);
    expect((await attempt(fixture)).ended.outcome).toBe("acquired");
  });
});
