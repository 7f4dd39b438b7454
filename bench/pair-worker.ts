import { setTimeout as sleep } from "node:timers/promises";
import { Cluster, Redis } from "ioredis";
import {
  acknowledged,
  libraries,
  nodeRedisPlain,
  nodeRedisSubmitLock,
  scriptsAlone,
  scriptsCorked,
} from "./libraries.ts";
import type { Client } from "./locker.ts";
import { beginProfile, ownShare, type ProfileJob, Samples, serveJobs } from "./process/serve.ts";

/** What a process with one library is asked to do. */
export type PairJob =
  | ProfileJob
  /** Acquire and release, this many callers at once, each pair for another user. */
  | { readonly kind: "pairs"; readonly callers: number; readonly seconds: number }
  /** Take locks and keep them; how much heap they took. */
  | { readonly kind: "hold"; readonly locks: number }
  /** Give all of them back. */
  | { readonly kind: "let-go" };

export interface PairResult {
  readonly pairsPerSecond: number;
  readonly pairs: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  /** The acquire alone. */
  readonly acquireP50Ms: number;
  /** Processor time of this process, in microseconds. */
  readonly cpuMicrosPerPair: number;
  readonly heapBytesPerLock: number;
  readonly ownShare: number;
}

/**
 * One library on one client in a process of its own.
 * Arguments: the name of the library, what its users' names begin with, `redis` or `cluster`, and
 * the ports with commas.
 */
const [name = "", prefix = "", kind = "", ports = ""] = process.argv.slice(2);
const others = [scriptsAlone, scriptsCorked, acknowledged, nodeRedisPlain, nodeRedisSubmitLock];
const library = [...libraries, ...others].find((each) => each.name === name);
if (library === undefined) throw new Error(`There is no library ${name}.`);
const client = await connect(ports.split(",").map(Number));
const locker = await library.open(client);
const held: unknown[] = [];
let users = 0;

const nothing: PairResult = {
  pairsPerSecond: 0,
  pairs: 0,
  p50Ms: 0,
  p99Ms: 0,
  acquireP50Ms: 0,
  cpuMicrosPerPair: 0,
  heapBytesPerLock: 0,
  ownShare: 0,
};

// Connected, and the scripts known to the server, before anything is measured.
await locker.release(await locker.acquire(nextUser()));

serveJobs<PairJob, PairResult, null>(null, async (job) => {
  switch (job.kind) {
    case "pairs":
      return pairs(job.callers, job.seconds);
    case "hold":
      return hold(job.locks);
    case "let-go":
      while (held.length > 0) await Promise.all(held.splice(-500).map(locker.release));
      return nothing;
    case "profile":
      await beginProfile();
      return nothing;
    case "own-share":
      return { ...nothing, ownShare: await ownShare() };
  }
});

async function pairs(callers: number, seconds: number): Promise<PairResult> {
  const whole = new Samples();
  const acquires = new Samples();
  let done = 0;
  const cpu = process.cpuUsage();
  const start = performance.now();
  const end = start + seconds * 1_000;
  async function caller(): Promise<void> {
    for (let from = performance.now(); from < end; ) {
      const hold = await locker.acquire(nextUser());
      acquires.add(performance.now() - from);
      await locker.release(hold);
      const now = performance.now();
      whole.add(now - from);
      from = now;
      done++;
    }
  }
  await Promise.all(Array.from({ length: callers }, caller));
  const elapsedMs = performance.now() - start;
  const { user, system } = process.cpuUsage(cpu);
  return {
    ...nothing,
    ...whole.quantiles(),
    acquireP50Ms: acquires.quantiles().p50Ms,
    pairs: done,
    pairsPerSecond: (done / elapsedMs) * 1_000,
    cpuMicrosPerPair: (user + system) / done,
  };
}

async function hold(locks: number): Promise<PairResult> {
  const before = await heapUsed();
  const from = held.length;
  held.length += locks;
  const slots = await heapUsed();
  for (let at = from; at < held.length; at += 500) {
    const count = Math.min(500, held.length - at);
    const taken = await Promise.all(
      Array.from({ length: count }, () => locker.acquire(nextUser())),
    );
    for (const [index, each] of taken.entries()) held[at + index] = each;
  }
  // What is left is what the library keeps: the list of the bench itself does not count.
  const after = await heapUsed();
  return { ...nothing, heapBytesPerLock: (after - Math.max(before, slots)) / locks };
}

/** After a collection, and with everything settled that was under way. */
async function heapUsed(): Promise<number> {
  await sleep(20);
  for (let round = 0; round < 3; round++) global.gc?.();
  return process.memoryUsage().heapUsed;
}

function nextUser(): string {
  return `${prefix}${users++ % 1_000_000}`;
}

async function connect(at: readonly number[]): Promise<Client> {
  if (library?.isOnNodeRedis === true) {
    const { connectNodeRedis } = await import("./node-redis.ts");
    return (await connectNodeRedis(kind, at)) as unknown as Client;
  }
  const connected = connectIoredis(at);
  // A Cluster knows its masters from then on.
  await connected.ping();
  return connected;
}

function connectIoredis(at: readonly number[]): Client {
  const enableAutoPipelining = library?.autoPipelining === true;
  if (kind === "redis") return new Redis(at[0] as number, "127.0.0.1", { enableAutoPipelining });
  const nodes = at.map((port) => ({ host: "127.0.0.1", port }));
  return new Cluster(nodes, { enableAutoPipelining });
}
