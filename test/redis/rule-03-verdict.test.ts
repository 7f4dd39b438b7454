import { afterEach, describe, expect, test } from "vitest";
import { record } from "../support/channels.ts";
import { freshUser } from "../support/ids.ts";
import { causeOf, leaseOf } from "../support/locks.ts";
import { observer } from "../support/observer.ts";
import { until } from "../support/until.ts";
import {
  block,
  closeFixtures,
  isAcquire,
  openDirect,
  openFixture,
  openHeld,
  patient,
  takePulse,
} from "./fixture.ts";

afterEach(closeFixtures);

describe("rule 3: one verdict for one attempt", () => {
  test("a grant that is read within the budget acquires, without another copy", async () => {
    const { proxy, lease } = await openHeld(patient);
    expect(proxy.commands.filter(isAcquire)).toHaveLength(1);
    await lease.release();
  });

  test("a grant that is read too late is unavailable, and is taken back", async () => {
    const [lock, redis] = [await openDirect({ ttlMs: 20_000, acquireTimeoutMs: 100 }), observer()];
    const user = freshUser();
    const attempt = lock.acquire(user);
    // The copy goes out in this turn, and the process does not look up until the budget is over.
    await new Promise<void>((resolve) => process.nextTick(resolve));
    block(150);
    expect((await attempt).outcome).toBe("unavailable");
    await until(async () => !(await redis.exists(`lock:submit:${user}`)), {
      what: "the late grant to be taken back",
    });
  });

  test("a verdict of contended needs no second copy, and writes nothing", async () => {
    const { lock, proxy, redis, user, lease } = await openHeld(patient);
    const from = proxy.commands.length;
    expect((await lock.acquire(user)).outcome).toBe("contended");
    expect(proxy.commands.slice(from)).toHaveLength(1);
    expect(await redis.ownerOf(lease.key)).toBe(lease.ownerId);
    await lease.release();
  });

  test("a refused copy is stamped again with the clock just learned, and acquires", async () => {
    const user = freshUser();
    const acquire = record("submit-lock:acquire", `lock:submit:${user}`);
    const { now } = Date;
    // The estimate of a new store starts at the process' own clock.
    Date.now = () => now() - 3_600_000;
    const { lock, redis } = await openFixture(patient).finally(() => {
      Date.now = now;
    });
    const lease = await leaseOf(lock, user);
    expect(acquire).toMatchObject([{ outcome: "acquired", copies: 2 }]);
    expect(await redis.ownerOf(lease.key)).toBe(lease.ownerId);
    await lease.release();
  });

  test("no answer within the budget is unavailable, and the cause says so", async () => {
    const { lock, proxy } = await openFixture({ acquireTimeoutMs: 200 });
    const pulse = await takePulse();
    proxy.holdRequests();
    const from = performance.now();
    const cause = causeOf(await lock.acquire(freshUser()));
    const took = performance.now() - from;
    expect(took).toBeGreaterThanOrEqual(199);
    expect(took).toBeLessThan(pulse.atMost(220));
    expect(cause).toMatchObject({ code: "SUBMIT_LOCK_UNAVAILABLE" });
  });
});
