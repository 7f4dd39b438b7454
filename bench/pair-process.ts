import type { Library } from "./libraries.ts";
import type { PairJob, PairResult } from "./pair-jobs.ts";
import { Child } from "./process/child.ts";

export type PairProcess = Child<PairJob, PairResult>;

let started = 0;

/** A process with one library on a server, or on a cluster. */
export function startPairs(
  library: Library,
  kind: "redis" | "cluster",
  ports: readonly number[],
): Promise<PairProcess> {
  // Users of its own: processes that run at the same time never contend.
  const prefix = `p${started++}-`;
  return Child.start(
    new URL("./pair-worker.ts", import.meta.url),
    [library.name, prefix, kind, ports.join(",")],
    ["--expose-gc"],
  );
}

/** The code is optimised and the connection's buffers have grown before anything counts. */
export async function warmUp(
  processes: Iterable<PairProcess>,
  callers: readonly number[],
  seconds: number,
): Promise<void> {
  for (const each of processes) {
    for (const count of callers) await each.run({ kind: "pairs", callers: count, seconds });
  }
}
