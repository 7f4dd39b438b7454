import { serverBinary, serverVersion } from "../../support/server-binary.ts";
import { megabytes, misses, type Round, soak } from "./soak.ts";

/**
 * `npm run lab -- soak`: ten minutes of mixed traffic with random faults, and a look at everything each
 * minute. `SOAK_MINUTES` and `SOAK_SEED` say otherwise; `--cluster`: on three masters.
 */
const onCluster = process.argv.includes("--cluster");
const minutes = Number(process.env["SOAK_MINUTES"] ?? 10);
const seed = Number(process.env["SOAK_SEED"] ?? Math.floor(Math.random() * 2 ** 32));
const binary = serverBinary();
console.log(
  `${minutes} minutes with SOAK_SEED=${seed}; ${serverVersion(binary)}, Node ${process.version}`,
);

const from = performance.now();
const rows: Record<string, string | number>[] = [];
const result = await soak({
  binary,
  onCluster,
  seed,
  rounds: minutes,
  roundMs: 55_000,
  customers: 30,
  untilIdle: true,
  tell(round) {
    rows.push(row(round));
    console.log(JSON.stringify(row(round)));
  },
});
const missed = misses(result);
console.log("\nThe first line is before any fault. Times in ms, memory in MB, Express + Koa:");
console.table(rows);
console.log("Faults:", result.faults);
console.log(
  `Connections at rest: ${result.idleConnections}. Exit codes: ${result.exitCodes.join(", ")}. Uncaught: ${result.uncaught.length}.`,
);
for (const miss of missed) console.log(`MISSED: ${miss}`);
const seconds = Math.round((performance.now() - from) / 1_000);
console.log(`${seconds} s: ${missed.length} misses.`);
process.exitCode = missed.length === 0 ? 0 : 1;

function row(round: Round) {
  const both = (value: (vitals: Round["vitals"][number]) => number | string) =>
    round.vitals.map(value).join(" + ");
  return {
    201: round.placed,
    409: round.contended,
    503: round.unavailable,
    left: round.left,
    "leases lost": round.lost,
    overlaps: round.overlaps,
    "kept out": Math.round(round.strandedMs),
    recovery: Math.round(round.recoveryMs),
    "keys gone": Math.round(round.keysGoneMs),
    connections: round.connections,
    memory: both((vitals) => megabytes(vitals).toFixed(1)),
    timers: both(({ resources }) => resources["Timeout"] ?? 0),
    sockets: both(({ resources }) => resources["TCPSocketWrap"] ?? 0),
    "on client": both(({ clientListeners }) => clientListeners),
    "on a socket": both(({ socketListeners }) => socketListeners),
  };
}
