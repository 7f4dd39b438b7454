import { expect, test, vi } from "vitest";
import { sharedRedisPort } from "../../support/redis-server.ts";
import { figuresOf, reasonOf } from "./figures.ts";
import { type ReplayOptions, replay } from "./replay.ts";

vi.setConfig({ testTimeout: 120_000 });

const shop = (lock: string): ReplayOptions => ({
  lock,
  redisPort: sharedRedisPort(),
  servers: 3,
  seconds: 5,
  tailSeconds: 8,
  wishesPerSecond: 40,
  users: 300,
  doubleClicks: 0.1,
  lateClicks: 0.1,
  every: { "lost reply": 20, "slow holder": 50, "killed process": 120 },
});

test("P1, P2 and P3: whatever befalls an order, nobody is blocked for long and none is doubled", async () => {
  const run = await replay(shop("submit-lock"));
  expect(run.faults["lost reply"]).toBeGreaterThan(4);
  expect(run.ordersLost).toBe(0);
  // A process that was killed keeps its user out for the life of its lock.
  const others = run.blocks.filter(({ fault }) => fault !== "killed process");
  const figures = figuresOf({ ...run, blocks: others });
  expect(figures).toMatchObject({ "users blocked": 0, "double orders at the same time": 0 });
});

test("with an id for each wish no later click becomes an order, either", async () => {
  const run = await replay(shop("submit-lock with an id for each wish"));
  expect(run).toMatchObject({ ordersLost: 0, surplus: [], orders: run.wishes });
});

test("an old lock fails in the same shop", async () => {
  const run = await replay(shop("SETNX, then EXPIRE"));
  const figures = figuresOf(run);
  expect(figures["users blocked"]).toBeGreaterThan(0);
  expect(figures["double orders at the same time"]).toBeGreaterThan(0);
  expect(reasonOf(run)).toContain("locked out by a process that was killed");
});
