import { readFileSync, writeFileSync } from "node:fs";
import { cpus, loadavg } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import { Cluster, Redis } from "ioredis";
import { RedisStore, SubmitLock } from "submit-lock";
import { startMasters } from "../test/support/masters.ts";
import { serverBinary, serverVersion } from "../test/support/server-binary.ts";
import { startServer } from "../test/support/server-process.ts";
import { until } from "../test/support/until.ts";
import { answerOf } from "./record-memory.ts";
import { costBetween, Observer, type ServerStats } from "./server-stats.ts";
import {
  answerBytes,
  type CostRow,
  clusterTable,
  type Figures,
  figuresOf,
  gathered,
  type Kind,
  kinds,
  measuredTables,
  type OrderCost,
  shopTable,
  type Way,
  ways,
} from "./sizing-tables.ts";
import { medianOf } from "./statistics.ts";

type Order = (lock: SubmitLock, user: number) => Promise<void>;

const orders: Record<Kind, Order> = {
  async lock(lock, user) {
    const attempt = await lock.acquire(user);
    if (attempt.outcome !== "acquired") throw new Error(`the lock was ${attempt.outcome}`);
    await attempt.lease.release();
  },
  async once(lock, user) {
    // So short that what is kept expires while the next orders come, as in a shop that has run for a day.
    const submission = { id: `cart-${user}:3`, fingerprint: "of the cart", retainMs: 2_000 };
    const attempt = await lock.acquire(user, { submission });
    if (attempt.outcome !== "acquired") throw new Error(`the submission was ${attempt.outcome}`);
    await attempt.lease.complete({ status: 201, headers, body });
  },
};

const body = answerOf(answerBytes);
const headers = {
  "content-type": "application/json; charset=utf-8",
  location: "/orders/10000000",
  etag: 'W/"MTIzNDU2Nzg5MDEy"',
};

/**
 * The median of so many rounds, summed over the masters.
 *
 * @param ports of a server that has a replica, or of the masters of a Cluster.
 */
async function measureOrder(
  ports: readonly number[],
  kind: Kind,
  way: Way,
  rounds: number,
): Promise<OrderCost> {
  const nodes = ports.map((port) => ({ port, host: "127.0.0.1" }));
  const [first = {}] = nodes;
  const clients = Array.from({ length: way.connections }, () =>
    nodes.length === 1 ? new Redis(first) : new Cluster(nodes),
  );
  const locks = clients.map((client) => openLock(client));
  const observers = ports.map((port) => new Observer(port));
  await Promise.all(locks.map((lock) => lock.check()));
  await place(locks, kind, { ...way, seconds: 0.3 });
  const measured: OrderCost[] = [];
  for (let round = 0; round < rounds; round++) {
    const before = await Promise.all(observers.map((each) => each.stats()));
    const placed = await place(locks, kind, way);
    const after = await Promise.all(observers.map((each) => each.stats()));
    const cost = { calls: 0, processorMicros: 0, bytesIn: 0, bytesOut: 0, replicaBytes: 0 };
    for (const [index, then] of before.entries()) {
      const now = after[index] as ServerStats;
      const { commands, cpuMicros } = costBetween(then, now, ["eval", "evalsha"]);
      cost.calls += commands / placed;
      cost.processorMicros += cpuMicros / placed;
      for (const bytes of ["bytesIn", "bytesOut", "replicaBytes"] as const) {
        cost[bytes] += (now[bytes] - then[bytes]) / placed;
      }
    }
    measured.push(cost);
    await Promise.all(observers.map(({ redis }) => redis.flushall()));
  }
  await Promise.all(locks.map((lock) => lock.close()));
  for (const observer of observers) observer.close();
  for (const client of clients) client.disconnect();
  const median = (name: keyof OrderCost) => medianOf(measured.map((each) => each[name]));
  return {
    calls: median("calls"),
    processorMicros: median("processorMicros"),
    bytesIn: median("bytesIn"),
    bytesOut: median("bytesOut"),
    replicaBytes: median("replicaBytes"),
  };
}

/** Its holder is no name of this machine, which is written with each lock. */
function openLock(redis: Redis | Cluster, ttlMs = 10_000): SubmitLock {
  return new SubmitLock({ store: new RedisStore(redis), ttlMs, holder: "web-3:4711" });
}

let users = 10_000_000;

/** @returns how many orders were placed. */
async function place(locks: readonly SubmitLock[], kind: Kind, way: Way): Promise<number> {
  const order = orders[kind];
  const from = performance.now();
  const end = from + way.seconds * 1_000;
  let placed = 0;
  const one = (lock: SubmitLock) => order(lock, users++).then(() => void placed++);
  const { perSecond } = way;
  if (perSecond === undefined) {
    const caller = async (lock: SubmitLock): Promise<void> => {
      while (performance.now() < end) await one(lock);
    };
    const callers = Array.from({ length: way.callers ?? 1 }, () => locks.map(caller));
    await Promise.all(callers.flat());
    return placed;
  }
  const underWay: Promise<void>[] = [];
  let dueAt = from;
  for (let now = from; now < end; now = performance.now()) {
    for (; dueAt <= now; dueAt += (-Math.log(1 - Math.random()) / perSecond) * 1_000) {
      underWay.push(one(locks[underWay.length % locks.length] as SubmitLock));
    }
    await sleep(1);
  }
  await Promise.all(underWay);
  return placed;
}

async function measureLock(port: number): Promise<number> {
  const count = 20_000;
  const redis = new Redis(port, "127.0.0.1");
  const lock = openLock(redis, 60_000);
  const observer = new Observer(port);
  await lock.check();
  await redis.flushall();
  const before = (await observer.stats()).usedMemory;
  for (let taken = 0; taken < count; taken += 500) {
    await Promise.all(Array.from({ length: 500 }, () => lock.acquire(users++)));
  }
  const grown = Math.round(((await observer.stats()).usedMemory - before) / count);
  await redis.flushall();
  await lock.close({ timeoutMs: 0 });
  observer.close();
  redis.disconnect();
  return grown;
}

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
