import { expect, inject, test } from "vitest";
import { seedOf, setting } from "../service/laboratory.ts";
import { misses, playCalls, replayedOf } from "./calls.ts";

// `npm run lab -- calls` plays 1 000 with more kills.
const submissions = setting("CALLS_SUBMISSIONS", 150);
const kills = setting("CALLS_KILLS", 5);

test(`${10 * submissions} calls of ${submissions} submissions over processes that are killed have one value each`, async () => {
  const seed = seedOf("CALLS_SEED");
  const binary = inject("redisServerBinary");
  const result = await playCalls({ binary, seed, submissions, kills });
  expect(misses(result), `CALLS_SEED=${seed} ${JSON.stringify(result.again)}`).toEqual([]);
  expect(replayedOf(result)).toBeGreaterThanOrEqual(9 * submissions);
}, 120_000);
