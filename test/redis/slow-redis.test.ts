import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, expect, test, vi } from "vitest";
import { wallClock } from "../../src/time.ts";
import { freshUser } from "../support/ids.ts";
import { until } from "../support/until.ts";
import { closeFixtures, openFixture, openHeld } from "./fixture.ts";

afterEach(async () => {
  vi.restoreAllMocks();
  await closeFixtures();
});

/** Redis answers each request, and later than `commandTimeoutMs`. */
const times = { ttlMs: 20_000, acquireTimeoutMs: 5_000, commandTimeoutMs: 100 } as const;
const cart = { id: "cart" };
const never = () => expect.fail("a repeat has run");

test("a repeat is told the value by a Redis that answers each look late", async () => {
  const { lock, proxy } = await openFixture(times);
  const user = freshUser();
  let begun!: () => void;
  const hasBegun = new Promise<void>((resolve) => {
    begun = resolve;
  });
  const first = lock.once(user, cart, async () => {
    begun();
    await until(() => lock.stats().waiting === 1, { what: "the repeat to wait" });
    await sleep(1_000);
    return 7;
  });
  await hasBegun;
  proxy.waitBeforeEachRequest(() => sleep(300));
  const repeat = await lock.once(user, cart, never, { waitMs: 30_000 });
  expect(repeat).toMatchObject({ value: 7, replayed: true });
  await first;
});

test("a clock that was set forward makes no cooldown longer", async () => {
  const { lease, redis } = await openHeld(times);
  const wall = wallClock.now;
  vi.spyOn(wallClock, "now").mockImplementation(() => wall() + 45_000);
  await lease.release({ cooldownMs: 1_000 });
  expect(Number(await redis.send("PTTL", lease.key))).toBeLessThanOrEqual(1_000);
});
