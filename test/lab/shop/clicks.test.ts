import { expect, inject, test } from "vitest";
import { seedOf, setting } from "../service/laboratory.ts";
import { misses, playClicks } from "./clicks.ts";

// `npm run lab -- clicks` plays 10 000.
const doubleClicks = setting("CLICKS", 300);

test(`${doubleClicks} double clicks with an id over two processes make as many orders`, async () => {
  const seed = seedOf("CLICKS_SEED");
  const binary = inject("redisServerBinary");
  const result = await playClicks({ binary, seed, doubleClicks, atOnce: 30 });
  expect(misses(result, doubleClicks), `CLICKS_SEED=${seed}`).toEqual([]);
}, 120_000);
