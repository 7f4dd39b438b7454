import { expect, inject, test } from "vitest";
import { misses, playFreed } from "./freed.ts";

// `npm run lab -- freed` plays 50 of each.
const locksEach = Number(process.env["FREED"] ?? 8);
const seed = Number(process.env["FREED_SEED"] ?? Math.floor(Math.random() * 2 ** 32));

test("rule 19, P10: locks of processes at work, frozen, killed and cut off are freed without an overlap", async () => {
  const results = await playFreed({ binary: inject("redisServerBinary"), seed, locksEach });
  expect(misses(results), `FREED_SEED=${seed} ${JSON.stringify(results)}`).toEqual([]);
  expect(results.map(({ freed }) => freed)).toEqual(Array(4).fill(locksEach));
  const [atWork, , killed] = results;
  expect(atWork?.reasons).toEqual({ freed: locksEach });
  expect(killed?.reasons).toEqual({});
}, 120_000);

test("a lock that is deleted instead overlaps, and the laboratory sees it", async () => {
  const options = { binary: inject("redisServerBinary"), seed, locksEach, now: true };
  const results = await playFreed(options);
  const overlaps = new Map(results.map((each) => [each.way, each.overlaps]));
  for (const way of ["at work", "frozen", "cut off"]) {
    expect(overlaps.get(way), JSON.stringify(results)).toBeGreaterThan(0);
  }
}, 120_000);
