import { Session } from "node:inspector/promises";
import { createHistogram } from "node:perf_hooks";
import type { FromChild } from "./child.ts";

/** The other side of `Child`: says that it is ready, and does one job after the other. */
export function serveJobs<Job, Result, Hello>(
  hello: Hello,
  work: (job: Job) => Promise<Result>,
): void {
  const tell = (message: FromChild<Hello, Result>): void => void process.send?.(message);
  process.on("message", (job: Job) => {
    work(job).then(
      (result) => tell({ result }),
      (error: unknown) =>
        tell({ error: error instanceof Error ? (error.stack ?? error.message) : String(error) }),
    );
  });
  // Without its parent it has nothing to do.
  process.on("disconnect", () => process.exit());
  tell({ hello });
}

/** Durations in milliseconds, to a thousandth of their size. */
export class Samples {
  readonly #nanos = createHistogram();

  add(ms: number): void {
    this.#nanos.record(Math.max(1, Math.round(ms * 1e6)));
  }

  quantiles(): { p50Ms: number; p99Ms: number } {
    return { p50Ms: this.#nanos.percentile(50) / 1e6, p99Ms: this.#nanos.percentile(99) / 1e6 };
  }
}

export type ProfileJob =
  | { readonly kind: "profile" }
  /** Ends the profile; its result is how much of it this package's own files have. */
  | { readonly kind: "own-share" };

export const sampledEveryMicros = 200;
const ownFiles = new URL("../../dist/esm/", import.meta.url).href;
/** Without a session between two profiles, so that nothing else that is measured is slowed. */
let session: Session;

export async function beginProfile(): Promise<void> {
  session = new Session();
  session.connect();
  await session.post("Profiler.enable");
  await session.post("Profiler.setSamplingInterval", { interval: sampledEveryMicros });
  await session.post("Profiler.start");
}

/**
 * The share of the samples, those without work left out, in which this package's own files ran. It
 * counts samples and no durations: those contain the time in which another process had the processor.
 */
export async function ownShare(): Promise<number> {
  const { profile } = await session.post("Profiler.stop");
  session.disconnect();
  const frames = new Map(profile.nodes.map(({ id, callFrame }) => [id, callFrame]));
  let busy = 0;
  let own = 0;
  for (const id of profile.samples ?? []) {
    const frame = frames.get(id);
    if (frame === undefined || frame.functionName === "(idle)") continue;
    busy++;
    if (frame.url.startsWith(ownFiles)) own++;
  }
  if (own === 0) throw new Error(`the profile has no sample in ${ownFiles}`);
  return own / busy;
}
