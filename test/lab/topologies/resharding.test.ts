import { expect, inject, test } from "vitest";
import { bothLibraries } from "../laboratory.ts";
import { Resharding } from "./resharding.ts";

const slots = 768;

// `npm run lab -- resharding` goes on for five minutes, moves half of all slots and replaces two masters.
test("P1, P6 and P9: while slots move, no lock is held twice, no user is stranded and no order runs twice", async () => {
  const seed = Number(process.env["RESHARDING_SEED"] ?? Math.floor(Math.random() * 2 ** 31));
  const binary = inject("redisServerBinary");
  // Longer than the defaults: other tests take the processor at the same time.
  const times = { ttlMs: 20_000, commandTimeoutMs: 2_000, acquireTimeoutMs: 5_000 };
  const load = { durationMs: 20_000, callers: 60, clients: bothLibraries, slots, failOvers: false };
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
  // A lock is late when a request was dropped, and sent again after "commandTimeoutMs"; on a busy
  // machine also where no slot moves.
  const share = ({ acquired, late }: { acquired: number; late: number }) => late / acquired;
  expect(share(lone.moving), of).toBeLessThan(0.1 + 2 * share(lone.still));
});
