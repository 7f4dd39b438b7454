import { expect, test } from "vitest";
import { playAll } from "./run.ts";

// `npm run lab -- two-doors` plays each of the 375.
test("P9: return page and webhooks of a payment are one order, whoever is killed, and with `lock.once` alone are not", async ({
  skip,
}) => {
  const played = await playAll(16, 4);
  if (played === undefined) return skip("there is no PostgreSQL here");
  expect(played.flatMap(({ misses }) => misses)).toEqual([]);
  const doubles = played.map(({ doubles, way }) => [way, Object.keys(doubles).sort()]);
  expect(doubles).toEqual([
    ["nothing else", ["record", "return"]],
    ["a unique key", []],
    ["a transaction", []],
  ]);
});
