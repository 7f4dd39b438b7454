import { serverBinary, serverVersion } from "../../support/server-binary.ts";
import { misses, playFreed } from "./freed.ts";

/**
 * `npm run lab -- freed`: a person frees 200 locks, 50 each of a process that is at work, frozen, killed and
 * cut off from Redis. `FREED` and `FREED_SEED` say otherwise.
 */
const locksEach = Number(process.env["FREED"] ?? 50);
const seed = Number(process.env["FREED_SEED"] ?? Math.floor(Math.random() * 2 ** 32));
const binary = serverBinary();
console.log(
  `${4 * locksEach} locks with FREED_SEED=${seed}; ${serverVersion(binary)}, Node ${process.version}`,
);

const results = await playFreed({ binary, seed, locksEach });
console.table(results.map((each) => ({ ...each, reasons: JSON.stringify(each.reasons) })));
const missed = misses(results);
for (const miss of missed) console.log(`MISSED: ${miss}`);
console.log(`${missed.length} misses.`);
process.exitCode = missed.length === 0 ? 0 : 1;
