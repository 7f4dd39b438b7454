import { serverBinary, serverVersion } from "../../support/server-binary.ts";
import { misses, playClicks } from "./clicks.ts";

/**
 * `npm run lab -- clicks`: 10 000 double clicks with an id over two server processes. `CLICKS` and
 * `CLICKS_SEED` say otherwise.
 */
const doubleClicks = Number(process.env["CLICKS"] ?? 10_000);
const seed = Number(process.env["CLICKS_SEED"] ?? Math.floor(Math.random() * 2 ** 32));
const binary = serverBinary();
console.log(
  `${doubleClicks} double clicks with CLICKS_SEED=${seed}; ${serverVersion(binary)}, Node ${process.version}`,
);

const from = performance.now();
const result = await playClicks({ binary, seed, doubleClicks, atOnce: 100 });
const { orders, fresh, inFlight, replayed } = result;
console.table({
  orders,
  "201 of a handler": fresh,
  "201 replayed": replayed,
  "409 in flight": inFlight,
});
const missed = misses(result, doubleClicks);
for (const miss of missed) console.log(`MISSED: ${miss}`);
console.log(`${Math.round((performance.now() - from) / 1_000)} s: ${missed.length} misses.`);
process.exitCode = missed.length === 0 ? 0 : 1;
