import { expect, inject, test } from "vitest";
import { seedOf, setting } from "../service/laboratory.ts";
import { misses as missesOfCalls, playCalls, replayedOf } from "./calls.ts";
import { misses as missesOfClicks, playClicks } from "./clicks.ts";

// `npm run lab -- calls` plays 1 000 with more kills.
const submissions = setting("CALLS_SUBMISSIONS", 150);
const kills = setting("CALLS_KILLS", 5);

test(`${10 * submissions} calls of ${submissions} submissions over processes that are killed have one value each`, async () => {
  const seed = seedOf("CALLS_SEED");
  const binary = inject("redisServerBinary");
  const result = await playCalls({ binary, seed, submissions, kills });
  expect(missesOfCalls(result), `CALLS_SEED=${seed} ${JSON.stringify(result.again)}`).toEqual([]);
  expect(replayedOf(result)).toBeGreaterThanOrEqual(9 * submissions);
}, 120_000);

// `npm run lab -- clicks` plays 10 000.
const doubleClicks = setting("CLICKS", 300);

test(`${doubleClicks} double clicks with an id over two processes make as many orders`, async () => {
  const seed = seedOf("CLICKS_SEED");
  const binary = inject("redisServerBinary");
  const result = await playClicks({ binary, seed, doubleClicks, atOnce: 30 });
  expect(missesOfClicks(result, doubleClicks), `CLICKS_SEED=${seed}`).toEqual([]);
}, 120_000);
