// @slow: begins first.

import { expect, test } from "vitest";
import { cast, families, story } from "../lab/nets/nets.ts";
import { doubles, hunt } from "../lab/sequences/run.ts";
import { sharedRedisPort } from "../support/redis-server.ts";

// `npm run lab -- fail-anywhere` takes more programs, and every major of a framework.
test("P1 and P5: each foreign call fails in each way, and strands nobody", async () => {
  const haul = await cast("fail-anywhere", { runs: 60, seed: 20_260_101, isStrict: false });
  if (haul.failure !== undefined) expect.fail(story("fail-anywhere", haul));
});

// `npm run lab -- linear-cost` takes more texts, stricter bounds and every major of a framework.
test("P6: what a client sends costs time that grows with its length and no faster", async () => {
  const haul = await cast("linear-cost", { runs: 100, seed: 20_260_101, isStrict: false });
  if (haul.failure !== undefined) expect.fail(story("linear-cost", haul));
});

// `npm run lab -- same-answer` takes more programs.
test.each(families)(
  "P8 and P9: a guard changes no answer, and a repeat is the first answer, on %s",
  async (family) => {
    // Koa leaves a response open whose head was flushed before its body, which takes seconds to see.
    const runs = family === "koa" ? 10 : 20;
    const haul = await cast("same-answer", { runs, seed: 20_260_101, isStrict: false, family });
    if (haul.failure !== undefined) expect.fail(story("same-answer", haul, { family }));
  },
);

// `npm run lab -- browser-sequences` plays thousands, and `--table` counts other ways to order.
const given = () => ({ runs: 20, seed: 20_260_101, shops: 6, redisPort: sharedRedisPort() });

test("P9: whatever happens to a page with submitOnce, its cart is one order", async () => {
  const story = await hunt("`submitOnce`", given());
  expect(story).toBe(undefined);
});

test("P9: with an id of the page's own, so is a cart in several tabs", async () => {
  const story = await hunt("`submitOnce` with `id`", given());
  expect(story).toBe(undefined);
});

test("P9: without a name and an id, each content of a cart is an order, shown as its own", async () => {
  const story = await hunt("`submitOnce`, by content", given());
  expect(story).toBe(undefined);
});

test("a key for each click orders some of these carts twice", async () => {
  const way = "`fetch`, a key for each click";
  const counts = await doubles({ ...given(), runs: 30 }, [way]);
  expect(counts.get(way)).toBeGreaterThan(0);
});
