import { chosen, labClients, rowOf, runLaboratory } from "../laboratory.ts";
import type { Service } from "../shop/service.ts";
import { startReplicatedCluster } from "./cluster.ts";
import { killService, loseWrite, startServices, terminateService } from "./endings.ts";
import { startSentinels } from "./sentinel.ts";
import { faults, type Topology } from "./topology.ts";
import { misses, ttlMs, underFault } from "./under-fault.ts";

const all = [
  { name: "Sentinel", start: startSentinels, options: [] },
  {
    name: "Sentinel, min-replicas-to-write 1",
    start: startSentinels,
    options: ["--min-replicas-to-write", "1"],
  },
  { name: "Cluster", start: startReplicatedCluster, options: [] },
  {
    name: "Cluster, cluster-require-full-coverage no",
    start: startReplicatedCluster,
    // Otherwise a node refuses everybody while one master is away, and clients look around at once.
    options: ["--cluster-require-full-coverage", "no"],
  },
];

/**
 * `npm run lab -- topologies`: Sentinel and Cluster under every fault, on each server that
 * `REDIS_SERVER_BINS` names. Words on the command line choose among topologies and faults:
 * `npm run lab -- topologies Sentinel paused`.
 */
export async function run(): Promise<void> {
  // The Sentinel client of node-redis is refused.
  const isRefused = labClients()[0] === "node-redis 6";
  const possible = chosen(all).filter(({ name }) => !isRefused || !name.startsWith("Sentinel"));
  await runLaboratory("Sentinel and Cluster under faults", async (binary) => {
    const found: Found = { rows: [], endings: [], missed: [] };
    for (const { name, options, start } of possible) {
      console.log(`\n${name}`);
      const topology = await start(binary, options);
      try {
        await play(topology, name, found);
      } finally {
        await topology.stop();
      }
    }
    console.log("\nWith two services:");
    console.table(found.rows);
    console.log(`Endings of a service, TTL ${ttlMs} ms. Times in ms.`);
    console.table(found.endings);
    return found.missed;
  });
}

interface Found {
  readonly rows: object[];
  readonly endings: object[];
  readonly missed: string[];
}

async function play(topology: Topology, where: string, found: Found): Promise<void> {
  const note = (miss: string) => {
    found.missed.push(`${where}, ${miss}`);
    console.log(`  MISSED: ${miss}`);
  };
  const pair = await startServices(topology);
  const [express, koa] = pair;
  const services: Service[] = [...pair];
  try {
    for (const fault of chosen(faults)) {
      const outcome = await underFault(topology, pair, fault);
      const row = { where, ...rowOf(outcome) };
      found.rows.push(row);
      console.log(`  ${JSON.stringify(row)}`);
      for (const miss of misses(fault, outcome)) note(`${fault.name}: ${miss}`);
    }
    const loss = await loseWrite(topology);
    if (!loss.refused && !(loss.overlapped && loss.wereApart)) {
      note(`the write that was lost on purpose showed nothing: ${JSON.stringify(loss)}`);
    }
    if (!loss.refused && !(loss.tokenRose && loss.counterRepeated)) {
      note(`after that write the token and the counter were ${JSON.stringify(loss)}`);
    }
    const drained = await terminateService(express, koa);
    const ended = drained.status === 201 && drained.exitCode === 0;
    if (!ended || drained.freeAfterMs > 1_000) note(`SIGTERM: ${JSON.stringify(drained)}`);
    const [fresh, other] = await startServices(topology);
    services.push(fresh, other);
    const freeAfterMs = await killService(koa, other);
    if (freeAfterMs > ttlMs + 1_000) note(`SIGKILL: free after ${freeAfterMs} ms`);
    found.endings.push({
      where,
      "SIGKILL: user free after": Math.round(freeAfterMs),
      "SIGTERM: user free after": Math.round(drained.freeAfterMs),
      "process ended after": Math.round(drained.endedAfterMs),
      ...loss,
    });
    console.log(`  ${JSON.stringify(found.endings.at(-1))}`);
  } finally {
    await Promise.all(services.map((service) => service.kill()));
  }
}
