import { expect, test } from "vitest";
import { sharedRedisPort } from "../../support/redis-server.ts";
import { submitLock } from "../faults/submit-lock.ts";
import { figuresOf } from "./figures.ts";
import { replay } from "./replay.ts";

test("P1, P2 and P3: lost replies block nobody and double no order", async () => {
  const run = await replay({
    library: submitLock,
    redisPort: sharedRedisPort(),
    seconds: 5,
    tailSeconds: 5,
    wishesPerSecond: 60,
    users: 300,
    doubleClicks: 0.1,
    loseEvery: 20,
  });
  expect(run.repliesLost).toBeGreaterThan(5);
  expect(run.unfulfilled).toBe(0);
  expect(run.orders).toBeGreaterThanOrEqual(run.wishes);
  expect(figuresOf(run)).toMatchObject({ "users blocked": 0, "double orders": 0 });
});

test("with an id for each wish no second click becomes an order, at once or later", async () => {
  const run = await replay({
    library: "once",
    redisPort: sharedRedisPort(),
    seconds: 5,
    tailSeconds: 5,
    wishesPerSecond: 60,
    users: 300,
    doubleClicks: 0.5,
    loseEvery: 20,
  });
  expect(run.repliesLost).toBeGreaterThan(5);
  expect(run).toMatchObject({
    unfulfilled: 0,
    doubleOrders: 0,
    laterOrders: 0,
    orders: run.wishes,
  });
});
