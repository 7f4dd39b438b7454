import { readFileSync, writeFileSync } from "node:fs";
import { cpus, loadavg } from "node:os";
import { Redis } from "ioredis";
import { startMasters } from "../test/support/masters.ts";
import { serverBinary, serverVersion } from "../test/support/server-binary.ts";
import { startServer } from "../test/support/server-process.ts";
import { until } from "../test/support/until.ts";
import { measureLock, measureOrder } from "./order-cost.ts";
import { gathered, kinds, ways } from "./orders.ts";
import { figuresOf } from "./sizing-page.ts";
import {
  type CostRow,
  clusterTable,
  type Figures,
  measuredTables,
  shopTable,
} from "./sizing-tables.ts";

/**
 * `npm run lab -- sizing`: measures what one order takes of a Redis that has a replica, and calculates
 * what a shop takes. Writes the tables of docs/operations/sizing.md.
 */
const rounds = 3;

const binary = serverBinary();
const load = loadavg()[0] ?? Number.NaN;
const master = await startServer(binary);
const replica = await startServer(binary, {
  args: ["--replicaof", `127.0.0.1 ${master.port}`, "--repl-diskless-sync-delay", "0"],
});
const costs: CostRow[] = [];
try {
  await inStep(master.port);
  for (const kind of kinds) {
    for (const way of ways) {
      const cost = await measureOrder([master.port], kind, way, rounds);
      costs.push({ kind, way: way.name, ...cost });
      process.stderr.write(".");
    }
  }
  write("measured", measured({ costs, lockBytes: await measureLock(master.port) }));
} finally {
  await Promise.all([master.stop(), replica.stop()]);
}
// A node that has met no other does not know its own address, and clients are told none.
const nodes = await startMasters(binary, 3, ["--cluster-announce-ip", "127.0.0.1"]);
try {
  const ofCluster: CostRow[] = [];
  const ports = nodes.map(({ port }) => port);
  for (const kind of kinds) {
    const cost = await measureOrder(ports, kind, gathered, rounds);
    ofCluster.push({ kind, way: gathered.name, ...cost });
  }
  write("cluster", clusterTable(ofCluster));
} finally {
  await Promise.all(nodes.map((node) => node.stop()));
}
// From the page, so that its figures follow from one another as they are rounded there.
write("shop", shopTable(figuresOf()));

function measured(figures: Figures): string {
  const processors = `${cpus().length} CPUs with a load of ${load.toFixed(1)} before the start`;
  const day = new Date().toISOString().slice(0, 10);
  return `${day}, Node ${process.version}, ${serverVersion(binary)}, ${processors}.\n\n${measuredTables(figures)}`;
}

function write(part: string, made: string): void {
  console.log(`\n${made}`);
  const page = new URL("../docs/operations/sizing.md", import.meta.url);
  const mark = `<!-- ${part}: npm run lab -- sizing -->`;
  const [before, after] = readFileSync(page, "utf8").split(mark);
  const end = after?.indexOf("<!-- end -->") ?? -1;
  if (before === undefined || after === undefined || end < 0)
    throw new Error(`no place for ${part}`);
  writeFileSync(page, `${before}${mark}\n\n${made}\n\n${after.slice(end)}`);
}

async function inStep(port: number): Promise<void> {
  const redis = new Redis(port, "127.0.0.1");
  const attached = async () => (await redis.info("replication")).includes("state=online");
  await until(attached, { what: "the replica to be in step" });
  redis.disconnect();
}
