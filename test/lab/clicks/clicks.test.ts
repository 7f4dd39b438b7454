import { expect, inject, test } from "vitest";
import { misses, playClicks } from "./clicks.ts";

// `npm run lab -- clicks` plays 10 000.
const doubleClicks = Number(process.env["CLICKS"] ?? 300);

test(`${doubleClicks} double clicks with an id over two processes make as many orders`, async () => {
  const seed = Number(process.env["CLICKS_SEED"] ?? Math.floor(Math.random() * 2 ** 32));
  const binary = inject("redisServerBinary");
  const result = await playClicks({ binary, seed, doubleClicks, atOnce: 30 });
  expect(misses(result, doubleClicks), `CLICKS_SEED=${seed} ${JSON.stringify(result)}`).toEqual([]);
  expect(result.orders).toBe(doubleClicks);
}, 120_000);
