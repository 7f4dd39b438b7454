import { monitorEventLoopDelay } from "node:perf_hooks";
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import { type Lease, RedisStore, SubmitLock } from "submit-lock";
import { ttlMs } from "./locker.ts";
import { serveJobs } from "./process/serve.ts";

/** What the process with the many leases is asked to do. */
export interface WatchdogJob {
  readonly leases: number;
  /** Over how long they are acquired, in seconds; 0 is all at once, so that their watchdogs stay in step. */
  readonly overSeconds: number;
  readonly watchSeconds: number;
}

export interface WatchdogResult {
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly maxMs: number;
  /** Leases that are still valid at the end. */
  readonly alive: number;
}

/** Many leases in one process, held and extended. Argument: the port of Redis. */
const redis = new Redis(Number(process.argv[2]), "127.0.0.1");
const lock = new SubmitLock({ store: new RedisStore(redis), ttlMs });
await lock.check();
let users = 0;

serveJobs<WatchdogJob, WatchdogResult, null>(null, async (job) => {
  const leases = await acquire(job);
  const delay = await watch(job.watchSeconds);
  const alive = leases.filter((lease) => lease.remainingMs() > 0).length;
  for (let at = 0; at < leases.length; at += 500) {
    await Promise.all(leases.slice(at, at + 500).map((lease) => lease.release()));
  }
  return { ...delay, alive };
});

async function acquire({ leases, overSeconds }: WatchdogJob): Promise<Lease[]> {
  const slices = Math.max(1, Math.round(overSeconds * 100));
  const taken: Lease[] = [];
  for (let slice = 0; slice < slices; slice++) {
    const count = Math.floor((leases * (slice + 1)) / slices) - taken.length;
    await Promise.all(
      Array.from({ length: count }, async () => {
        const attempt = await lock.acquire(`w${users++}`);
        if (attempt.outcome === "acquired") taken.push(attempt.lease);
      }),
    );
    if (slices > 1) await sleep(10);
  }
  return taken;
}

/** The histogram measures how far apart two ticks are, so that the tick itself has to be taken off. */
async function watch(seconds: number): Promise<Omit<WatchdogResult, "alive">> {
  const tickMs = 1;
  const histogram = monitorEventLoopDelay({ resolution: tickMs });
  histogram.enable();
  await sleep(seconds * 1_000);
  histogram.disable();
  const over = (nanos: number): number => Math.max(0, nanos / 1e6 - tickMs);
  return {
    p50Ms: over(histogram.percentile(50)),
    p99Ms: over(histogram.percentile(99)),
    maxMs: over(histogram.max),
  };
}
