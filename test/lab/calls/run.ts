import { serverBinary, serverVersion } from "../../support/server-binary.ts";
import { misses, playCalls } from "./calls.ts";

/**
 * `npm run lab -- calls`: 10 000 concurrent calls of 1 000 submissions, over four processes of which
 * up to 20 are killed. `CALLS_SUBMISSIONS`, `CALLS_KILLS` and `CALLS_SEED` say otherwise.
 */
const submissions = Number(process.env["CALLS_SUBMISSIONS"] ?? 1_000);
const kills = Number(process.env["CALLS_KILLS"] ?? 20);
const seed = Number(process.env["CALLS_SEED"] ?? Math.floor(Math.random() * 2 ** 32));
const binary = serverBinary();
console.log(
  `${10 * submissions} calls with CALLS_SEED=${seed}; ${serverVersion(binary)}, Node ${process.version}`,
);

const from = performance.now();
const result = await playCalls({ binary, seed, submissions, kills });
console.table({ ...result.again });
const { fresh, interrupted, kills: killed, lost, overlaps, replayed, unrecorded } = result;
console.table({ killed, fresh, replayed, overlaps, interrupted, unrecorded, lost });
const missed = misses(result);
for (const miss of missed.slice(0, 20)) console.log(`MISSED: ${miss}`);
console.log(`${Math.round((performance.now() - from) / 1_000)} s: ${missed.length} misses.`);
process.exitCode = missed.length === 0 ? 0 : 1;
