import { delimiter } from "node:path";
import { serverBinary, serverVersion } from "../../support/server-binary.ts";
import { Resharding } from "./resharding.ts";

/**
 * `npm run lab -- resharding`: 200 callers on a Cluster of three masters and three replicas, while half of
 * all slots move and two masters are replaced, on each server that `REDIS_SERVER_BINS` names. Takes
 * `RESHARDING_SECONDS` and `RESHARDING_SEED`.
 */
const durationMs = 1_000 * Number(process.env["RESHARDING_SECONDS"] ?? 300);
/** The times are the lock's defaults. */
const times = { ttlMs: 10_000, commandTimeoutMs: 200, acquireTimeoutMs: 1_000 };
const options = { ...times, callers: 200, failOvers: true };
const seed = Number(process.env["RESHARDING_SEED"] ?? Math.floor(Math.random() * 2 ** 31));
const binaries = (process.env["REDIS_SERVER_BINS"] ?? "").split(delimiter).filter(Boolean);
if (binaries.length === 0) binaries.push(serverBinary());

const table: Record<string, Record<string, number>> = {};
let found = 0;
console.log(`RESHARDING_SECONDS=${durationMs / 1_000} RESHARDING_SEED=${seed}`);
for (const binary of binaries) {
  const server = (serverVersion(binary) ?? binary).replace(" server v=", " ");
  console.log(`\n${server}`);
  const played = await Resharding.play(binary, { ...options, durationMs, seed });
  const { counts, failovers, findings, lone, moves, seconds } = played;
  if (moves.counts.atomically === 0) console.log("  No slot was moved atomically.");
  for (const { isKill, from, writableAt } of failovers) {
    const ms = Math.round(writableAt - from);
    console.log(`  A master was ${isKill ? "killed" : "failed over"}: no writes for ${ms} ms.`);
  }
  for (const [slots, { acquired, late }] of Object.entries(lone)) {
    console.log(`  Locks without a record, slot ${slots}: ${acquired}, ${late} of them late.`);
  }
  const row = {
    seconds: Math.round(seconds),
    "orders per second": Math.round(counts.acquired / seconds),
    "slots moved by key": moves.counts.byKey,
    "slots moved atomically": moves.counts.atomically,
    ...counts,
    ...findings,
  };
  for (const [name, count] of Object.entries(row)) {
    table[name] = { ...table[name], [server]: count };
  }
  found += Object.values(findings).reduce((sum, count) => sum + count, 0);
}
console.table(table);
console.log(`${found} findings.`);
process.exitCode = found === 0 ? 0 : 1;
