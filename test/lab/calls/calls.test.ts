import { expect, inject, test } from "vitest";
import { misses, playCalls } from "./calls.ts";

// `npm run lab -- calls` plays 1 000 with more kills.
const submissions = Number(process.env["CALLS_SUBMISSIONS"] ?? 150);
const kills = Number(process.env["CALLS_KILLS"] ?? 5);

test(`${10 * submissions} calls of ${submissions} submissions over processes that are killed have one value each`, async () => {
  const seed = Number(process.env["CALLS_SEED"] ?? Math.floor(Math.random() * 2 ** 32));
  const binary = inject("redisServerBinary");
  const result = await playCalls({ binary, seed, submissions, kills });
  expect(misses(result), `CALLS_SEED=${seed} ${JSON.stringify(result)}`).toEqual([]);
  expect(result.replayed).toBeGreaterThanOrEqual(9 * submissions);
}, 120_000);
