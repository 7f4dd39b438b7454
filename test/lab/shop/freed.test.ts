import { expect, inject, test } from "vitest";
import { seedOf, setting } from "../laboratory.ts";
import { misses, playFreed } from "./freed.ts";

// `npm run lab -- freed` plays 50 of each.
const locksEach = setting("FREED", 8);
const seed = seedOf("FREED_SEED");

test("rule 19, P10: locks of processes at work, frozen, killed and cut off are freed without an overlap", async () => {
  const results = await playFreed({ binary: inject("redisServerBinary"), seed, locksEach });
  expect(misses(results), `FREED_SEED=${seed}`).toEqual([]);
  expect(results.map(({ freed }) => freed)).toEqual(Array(4).fill(locksEach));
  const [atWork, , killed] = results;
  expect(atWork?.reasons).toEqual({ freed: locksEach });
  expect(killed?.reasons).toEqual({});
});

test("a lock that is deleted instead overlaps, and the laboratory sees it", async () => {
  const options = { binary: inject("redisServerBinary"), seed, locksEach, now: true };
  const results = await playFreed(options);
  const overlaps = new Map(results.map((each) => [each.way, each.overlaps]));
  for (const way of ["at work", "frozen", "cut off"] as const) {
    expect(overlaps.get(way), way).toBeGreaterThan(0);
  }
});
