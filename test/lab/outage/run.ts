import { serverBinary, serverVersion } from "../../support/server-binary.ts";
import {
  type Away,
  acquireTimeoutMs,
  misses,
  type OutageResult,
  outage,
  slopeMb,
} from "./outage.ts";

/**
 * `npm run lab -- outage`: 500 submits a second for 60 s while Redis is away, once killed and once silent.
 * `OUTAGE_SECONDS` and `OUTAGE_RATE` say otherwise.
 */
const seconds = Number(process.env["OUTAGE_SECONDS"] ?? 60);
const perSecond = Number(process.env["OUTAGE_RATE"] ?? 500);
const binary = serverBinary();
console.log(
  `${perSecond} submits a second for ${seconds} s; acquireTimeoutMs ${acquireTimeoutMs}; ${serverVersion(binary)}, Node ${process.version}`,
);

const rows: Record<string, ReturnType<typeof row>> = {};
const missed: string[] = [];
for (const away of ["killed", "silent"] satisfies Away[]) {
  const result = await outage({ binary, away, seconds, perSecond });
  rows[away] = row(result);
  console.log(`\nRedis ${away}. Heap and external memory after gc, in MB:`);
  console.log(`  ${[result.beforeMb, ...result.duringMb, result.afterMb].map(mb).join(" ")}`);
  for (const miss of misses(result)) missed.push(`Redis ${away}: ${miss}`);
}
console.table(rows);
for (const miss of missed) console.log(`MISSED: ${miss}`);
console.log(`${missed.length} misses.`);
process.exitCode = missed.length === 0 ? 0 : 1;

function row(result: OutageResult) {
  return {
    "answers, all 503": result.others === 0 ? result.submits : `not all: ${result.others}`,
    "p50 ms": Math.round(result.p50Ms),
    "p99 ms": Math.round(result.p99Ms),
    "max ms": Math.round(result.maxMs),
    "max of a 401 ms": Math.round(result.httpMs),
    "heap before MB": mb(result.beforeMb),
    "at most": mb(Math.max(...result.duringMb)),
    after: mb(result.afterMb),
    "2nd half − 1st": mb(slopeMb(result)),
    "first order after ms": Math.round(result.recoveryMs),
    uncaught: result.uncaught.length,
  };
}

function mb(value: number): string {
  return value.toFixed(1);
}
