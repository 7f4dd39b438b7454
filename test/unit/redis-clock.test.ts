import fc from "fast-check";
import { expect, test } from "vitest";
import { RedisClock } from "../../src/stores/redis/connection-pair.ts";

/** A reply of a Redis whose clock is ahead of ours by `ahead`, after `out` and `back` milliseconds on the way. */
function reply(clock: RedisClock, ahead: number, out: number, back: number): void {
  const readAt = performance.now();
  const executedAt = readAt - back;
  clock.learn(Math.floor(executedAt + ahead), executedAt - out, readAt);
}
const errorOf = (clock: RedisClock, ahead: number) => clock.now() - (performance.now() + ahead);
const wallClock = Date.now() - performance.now();

test("the estimate starts at the wall clock of this process", () => {
  expect(Math.abs(errorOf(new RedisClock(), wallClock))).toBeLessThan(50);
});

test("one quick reply puts a wrong estimate right, whichever way it was wrong", () => {
  for (const hours of [-1, 1]) {
    const clock = new RedisClock();
    const ahead = wallClock + hours * 3_600_000;
    reply(clock, ahead, 1, 1);
    expect(Math.abs(errorOf(clock, ahead))).toBeLessThan(50);
  }
});

test("a late reply, whose bounds are wide, does not spoil an estimate that is within them", () => {
  const clock = new RedisClock();
  reply(clock, wallClock + 5_000, 0, 0);
  const before = errorOf(clock, wallClock + 5_000);
  reply(clock, wallClock + 5_000, 10_000, 10_000);
  expect(Math.abs(errorOf(clock, wallClock + 5_000) - before)).toBeLessThanOrEqual(2);
});

test("the estimate lies within the bounds of the last reply, whatever came before", () => {
  const ms = fc.integer({ min: 0, max: 10_000 });
  const replies = fc.array(fc.tuple(fc.integer({ min: -1e9, max: 1e9 }), ms, ms), { minLength: 1 });
  fc.assert(
    fc.property(replies, (all) => {
      const clock = new RedisClock();
      for (const [ahead, out, back] of all) reply(clock, ahead, out, back);
      const [ahead, out, back] = all.at(-1) as [number, number, number];
      // 50 ms, because the test itself may be held up between the two readings of the clock.
      const error = errorOf(clock, ahead);
      expect(error).toBeGreaterThanOrEqual(-back - 50);
      expect(error).toBeLessThanOrEqual(out + 50);
    }),
  );
});

test("the time is a whole number, as the script compares whole numbers", () => {
  expect(Number.isSafeInteger(new RedisClock().now())).toBe(true);
});
