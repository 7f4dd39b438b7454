import { expect, test } from "vitest";
import { doubles, hunt } from "../lab/sequences/run.ts";
import { sharedRedisPort } from "../support/redis-server.ts";

// `npm run lab -- browser-sequences` plays thousands, and `--table` counts other ways to order.
const given = () => ({ runs: 60, seed: 20_260_101, shops: 6, redisPort: sharedRedisPort() });

test("P9: whatever happens to a page with submitOnce, its cart is one order", async () => {
  const story = await hunt("`submitOnce`", { ...given(), hasSecondTabs: false });
  expect(story).toBe(undefined);
});

test("P9: with an id of the page's own, so is a cart in several tabs", async () => {
  const story = await hunt("`submitOnce` with `id`", { ...given(), hasSecondTabs: true });
  expect(story).toBe(undefined);
});

test("a key for each click orders some of these carts twice", async () => {
  const way = "`fetch`, a key for each click";
  const counts = await doubles({ ...given(), runs: 30, hasSecondTabs: false }, [way]);
  expect(counts.get(way)).toBeGreaterThan(0);
});
