import { expect, inject, test } from "vitest";
import { bothLibraries } from "../client-name.ts";
import { Resharding } from "./resharding.ts";

const slots = 768;

// `npm run lab -- resharding` goes on for five minutes, moves half of all slots and replaces two masters.
test("P1, P6 and P9: while slots move, no lock is held twice, no user is stranded and no order runs twice", async () => {
  const seed = Number(process.env["RESHARDING_SEED"] ?? Math.floor(Math.random() * 2 ** 31));
  const binary = inject("redisServerBinary");
  // Longer than the defaults: other tests take the processor at the same time.
  const times = { durationMs: 20_000, ttlMs: 20_000, acquireTimeoutMs: 3_000 };
  const load = { callers: 60, clients: bothLibraries, slots, failOvers: false };
  const options = { ...times, ...load, seed };
  const { counts, findings, lone, moves } = await Resharding.play(binary, options);
  const of = `RESHARDING_SEED=${seed} ${JSON.stringify({ ...counts, ...lone, ...moves.counts })}`;
  expect(
    Object.entries(findings).filter(([, count]) => count > 0),
    of,
  ).toEqual([]);
  expect(moves.counts.byKey + moves.counts.atomically, of).toBe(slots);
  // Otherwise nothing was found because nothing was met.
  expect(counts.completed, of).toBeGreaterThan(100);
  expect(lone.moving.acquired, of).toBeGreaterThan(30);
  // On a busy machine all of them are late at times.
  const late = ({ acquired, late }: typeof lone.still) => late / acquired;
  expect(late(lone.moving), of).toBeLessThan(0.2 + 3 * late(lone.still));
}, 120_000);
