import { describe, expect, test } from "vitest";
import { VirtualFixture } from "../lab/simulation/virtual-fixture.ts";
import { acquired, causeOf, leaseOf } from "../support/locks.ts";

describe("rule 10: our own timers, in virtual time", () => {
  test("after a blocked event loop the answer is read before the timer is believed", async () => {
    const fixture = new VirtualFixture();
    await fixture.pass(10);
    // The call goes out in this turn, and its answer lies behind the timer that has passed.
    const attempt = fixture.run(() => {
      fixture.block(900);
      return fixture.lock.acquire("42");
    });
    expect(acquired(await attempt).confirmed).toBe(false);
    expect(fixture.writesOf("acquire")).toHaveLength(1);
  });

  test("after an event loop that was blocked beyond acquireTimeoutMs the answer is too late", async () => {
    const fixture = new VirtualFixture();
    await fixture.pass(10);
    const attempt = fixture.run(() => {
      fixture.block(1_100);
      return fixture.lock.acquire("42");
    });
    expect(causeOf(await attempt)).toMatchObject({ code: "SUBMIT_LOCK_UNAVAILABLE" });
  });

  test("after a blocked event loop a lease that was extended in time is not lost", async () => {
    const fixture = new VirtualFixture({ ttlMs: 1_000 });
    await fixture.pass(10);
    const lease = await fixture.run(() => leaseOf(fixture.lock, "42"));
    for (let round = 1; round <= 5; round++) {
      await fixture.passUntil(() => fixture.writesOf("extend").length === round);
      // Beyond the time at which the holder would be told: the answer lies behind that timer.
      fixture.block(600);
      await fixture.pass(610);
    }
    expect(fixture.look(() => lease.signal.aborted)).toBe(false);
    expect(await fixture.run(() => lease.release())).toBe("released");
  });
});
