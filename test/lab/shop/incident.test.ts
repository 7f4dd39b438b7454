import { expect, test, vi } from "vitest";
import { sharedRedisPort } from "../../support/redis-server.ts";
import { figuresOf, reasonOf } from "../incident/page.ts";
import { type ReplayOptions, replay } from "./incident.ts";

vi.setConfig({ testTimeout: 120_000 });

const never = Number.POSITIVE_INFINITY;

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
  every: { "lost reply": 20, "slow holder": 25, "killed process": 60 },
});

test("P1, P2 and P3: whatever befalls an order, nobody is blocked for the life of a lock and none is doubled", async () => {
  const options = shop("submit-lock");
  // A process that was killed keeps its users out for as long as that.
  const every = { ...options.every, "killed process": never };
  const run = await replay({ ...options, every, tailSeconds: 60 });
  expect(run.faults["lost reply"]).toBeGreaterThan(4);
  expect(run.ordersLost).toBe(0);
  const figures = figuresOf(run);
  expect(figures["double orders at the same time"]).toBe(0);
  expect(figures["longest block (s)"]).toBeLessThan(4);
});

test("with an id for each wish no later click becomes an order, either", async () => {
  // A customer whose server was killed tries again until the lock has run out, on a busy machine later.
  const run = await replay({ ...shop("submit-lock with an id for each wish"), tailSeconds: 60 });
  expect(run).toMatchObject({ ordersLost: 0, surplus: [], orders: run.wishes });
});

test("an old lock blocks users in the same shop", async () => {
  const options = shop("SETNX, then EXPIRE");
  const run = await replay({ ...options, every: { ...options.every, "slow holder": never } });
  expect(figuresOf(run)["users blocked"]).toBeGreaterThan(0);
  expect(reasonOf(run)).toContain("locked out by a process that was killed");
});

test("an old lock doubles orders in the same shop", async () => {
  // Nothing else, because an order whose server was killed, or whose lock stays, is not doubled.
  const every = { "slow holder": 8, "lost reply": never, "killed process": never };
  const run = await replay({ ...shop("SETNX, then EXPIRE"), every });
  expect(figuresOf(run)["double orders at the same time"]).toBeGreaterThan(0);
});
