import { delimiter } from "node:path";
import { serverBinary, serverVersion } from "../../support/server-binary.ts";
import { labClients } from "../client-name.ts";
import type { Service } from "../service/service.ts";
import { startReplicatedCluster } from "./cluster.ts";
import { killService, loseWrite, startServices, terminateService } from "./endings.ts";
import { startSentinels } from "./sentinel.ts";
import { faults, type Topology } from "./topology.ts";
import { misses, type Outcome, ttlMs, underFault } from "./under-fault.ts";

/**
 * `npm run lab -- topologies`: Sentinel and Cluster under every fault, on each server that
 * `REDIS_SERVER_BINS` names. Words on the command line choose among topologies and faults:
 * `npm run lab -- topologies Sentinel paused`.
 */
const words = process.argv.slice(2);
const binaries = (process.env["REDIS_SERVER_BINS"] ?? "").split(delimiter).filter(Boolean);
if (binaries.length === 0) binaries.push(serverBinary());

const [client] = labClients();
const all = [
  { name: "Sentinel", start: (binary: string) => startSentinels(binary) },
  {
    name: "Sentinel, min-replicas-to-write 1",
    start: (binary: string) => startSentinels(binary, ["--min-replicas-to-write", "1"]),
  },
  { name: "Cluster", start: (binary: string) => startReplicatedCluster(binary) },
  {
    name: "Cluster, cluster-require-full-coverage no",
    // Otherwise a node refuses everybody while one master is away, and clients look around at once.
    start: (binary: string) =>
      startReplicatedCluster(binary, ["--cluster-require-full-coverage", "no"]),
  },
];

// The Sentinel client of node-redis is refused.
const topologies = all.filter(
  ({ name }) => client !== "node-redis 6" || !name.startsWith("Sentinel"),
);

const rows: Record<string, string | number>[] = [];
const endings: Record<string, string | number>[] = [];
const missed: string[] = [];
const from = performance.now();

for (const binary of binaries) {
  const version = serverVersion(binary) ?? binary;
  for (const { name, start } of topologies.filter((each) => isChosen(each.name, topologies))) {
    console.log(`\n${version}, ${name}`);
    const topology = await start(binary);
    try {
      await play(topology, `${version.replace(" server v=", " ")}, ${name}`);
    } finally {
      await topology.stop();
    }
  }
}

console.log(
  "\nUnder faults, with two services. Times in ms; 503 s: from the first 503 to the last.",
);
console.table(rows);
console.log(`Endings of a service, TTL ${ttlMs} ms. Times in ms.`);
console.table(endings);
for (const miss of missed) console.log(`MISSED: ${miss}`);
const seconds = Math.round((performance.now() - from) / 1_000);
console.log(`${rows.length} faults in ${seconds} s: ${missed.length} misses.`);
process.exitCode = missed.length === 0 ? 0 : 1;

async function play(topology: Topology, where: string): Promise<void> {
  const pair = await startServices(topology);
  const [express, koa] = pair;
  const services: Service[] = [...pair];
  try {
    for (const fault of faults.filter((each) => isChosen(each.name, faults))) {
      const outcome = await underFault(topology, pair, fault);
      rows.push({ where, ...row(outcome) });
      console.log(`  ${fault.name}: ${JSON.stringify(row(outcome))}`);
      for (const miss of misses(fault, outcome)) note(`${where}, ${fault.name}: ${miss}`);
    }
    const loss = await loseWrite(topology);
    if (!loss.refused && !(loss.overlapped && loss.wereApart)) {
      note(`${where}: the write that was lost on purpose showed nothing: ${JSON.stringify(loss)}`);
    }
    if (!loss.refused && !(loss.tokenRose && loss.counterRepeated)) {
      note(`${where}: after that write the token and the counter were ${JSON.stringify(loss)}`);
    }
    const drained = await terminateService(express, koa);
    const ended = drained.status === 201 && drained.exitCode === 0;
    if (!ended || drained.freeAfterMs > 1_000)
      note(`${where}, SIGTERM: ${JSON.stringify(drained)}`);
    const [fresh, other] = await startServices(topology);
    services.push(fresh, other);
    const freeAfterMs = await killService(koa, other);
    if (freeAfterMs > ttlMs + 1_000) note(`${where}, SIGKILL: free after ${freeAfterMs} ms`);
    endings.push({
      where,
      "SIGKILL: user free after": Math.round(freeAfterMs),
      "SIGTERM: user free after": Math.round(drained.freeAfterMs),
      "process ended after": Math.round(drained.endedAfterMs),
      "a write lost on purpose": loss.refused ? "refused" : "two orders at once",
      "the second one's token": loss.refused ? "-" : loss.tokenRose ? "higher" : "not higher",
      "an INCR beside it": loss.refused ? "-" : loss.counterRepeated ? "the same again" : "another",
    });
    console.log(`  ${JSON.stringify(endings.at(-1))}`);
  } finally {
    await Promise.all(services.map((service) => service.kill()));
  }
}

function note(miss: string): void {
  missed.push(miss);
  console.log(`  MISSED: ${miss}`);
}

function row(outcome: Outcome) {
  return {
    fault: outcome.fault,
    201: outcome.placed,
    409: outcome.contended,
    503: outcome.unavailable,
    "503 for": Math.round(outcome.unavailableForMs),
    "slowest 503": Math.round(outcome.slowest503Ms),
    recovery: Math.round(outcome.recoveryMs),
    "writable after": Math.round(outcome.writableMs),
    "orders after that": Math.round(outcome.resumeMs),
    "leases lost": outcome.lost,
    overlaps: outcome.overlaps,
    "of lost writes": outcome.excused,
    "kept out by nobody": Math.round(outcome.strandedMs),
    "keys gone after": Math.round(outcome.keysGoneMs),
    uncaught: outcome.uncaught.length,
  };
}

/** A word chooses by a part of a name; a table that no word speaks of is whole. */
function isChosen(name: string, table: readonly { name: string }[]): boolean {
  const about = words.filter((word) => table.some((each) => each.name.includes(word)));
  return about.length === 0 || about.some((word) => name.includes(word));
}
