import { Child } from "../process/child.ts";
import type { ProfileJob } from "../process/own-share.ts";
import { seconds } from "../settings.ts";
import type { Route } from "./variants.ts";

export interface ServerHello {
  readonly port: number;
}

/** `cpu`: how much processor time the server took since it was asked last, in microseconds. */
export type ServerJob = { readonly kind: "cpu" } | ProfileJob;

export interface LoadJob {
  readonly port: number;
  readonly connections: number;
  readonly seconds: number;
  /** Requests a second, at random times; without it, each connection asks as soon as it was answered. */
  readonly perSecond?: number;
  /** All requests are this user's; without it, each is another one's. */
  readonly user?: string;
  /** The `Idempotency-Key` of a request: a new one each, or the same for all. */
  readonly key?: "new" | "same";
}

export interface LoadResult {
  readonly requests: number;
  readonly requestsPerSecond: number;
  readonly statuses: Readonly<Record<string, number>>;
  readonly p50Ms: number;
  readonly p99Ms: number;
}

export type ServerProcess = Child<ServerJob, number, ServerHello>;
export type LoadProcess = Child<LoadJob, LoadResult>;

export function startRoute(route: Route, redisPort: number): Promise<ServerProcess> {
  const script = new URL("./server.ts", import.meta.url);
  return Child.start(script, [route.framework, route.variant, `${redisPort}`]);
}

export function startLoad(): Promise<LoadProcess> {
  return Child.start(new URL("./load.ts", import.meta.url), []);
}

/** Every answer has to be the one that is measured. */
export function checkStatus(result: LoadResult, status: number): LoadResult {
  const seen = Object.keys(result.statuses);
  if (seen.length === 1 && seen[0] === `${status}`) return result;
  throw new Error(`expected only ${status}, got ${JSON.stringify(result.statuses)}`);
}

/** A process that has waited for its turn has given memory back, and takes it again first. */
export async function warmAgain(load: LoadProcess, job: LoadJob): Promise<void> {
  await load.run({ ...job, seconds: job.seconds / 2 });
}

/** Long enough for the code to be optimised, whatever a measurement lasts. */
export async function warmUp(load: LoadProcess, job: Omit<LoadJob, "seconds">): Promise<void> {
  await load.run({ ...job, seconds: Math.max(1, seconds) });
}
