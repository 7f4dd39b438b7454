import { scriptCalls } from "../libraries.ts";
import { seconds } from "../part.ts";
import { Child } from "../process/child.ts";
import type { ProfileJob } from "../process/serve.ts";

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

/** What stands before the order route. */
export type Variant =
  | "bare"
  | "ping"
  | "hand-written"
  | "scripts"
  | "guard"
  | "protect"
  | "once"
  | "measured"
  | "traced";

/** A route as it is served by a process of its own. */
export interface Route {
  readonly framework: "Express" | "Koa";
  readonly variant: Variant;
  /** The commands that it sends itself; Redis counts those within a script, too. */
  readonly sends: readonly string[];
}

const sends: Record<Variant, readonly string[]> = {
  bare: [],
  ping: ["ping"],
  "hand-written": ["set", "evalsha"],
  scripts: scriptCalls,
  guard: scriptCalls,
  protect: scriptCalls,
  once: scriptCalls,
  measured: scriptCalls,
  traced: scriptCalls,
};

function routesOf(framework: Route["framework"], variants: readonly Variant[]): Route[] {
  return variants.map((variant) => ({ framework, variant, sends: sends[variant] }));
}

export const routes: readonly Route[] = [
  ...routesOf("Express", ["bare", "ping", "hand-written", "scripts", "guard", "protect"]),
  ...routesOf("Koa", ["bare", "ping", "hand-written", "scripts", "guard"]),
];

export const variantNames: Record<Variant, string> = {
  bare: "bare",
  ping: "one PING",
  "hand-written": "hand-written lock",
  scripts: "its scripts alone",
  guard: "submit-lock",
  protect: "submit-lock, protect",
  once: "submit-lock, protect, idempotency",
  measured: "submit-lock, protect, metrics",
  traced: "submit-lock, protect, metrics and spans",
};

export function nameOf({ framework, variant }: Route): string {
  return `${framework}, ${variantNames[variant]}`;
}
