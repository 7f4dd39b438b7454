import type { Library } from "./libraries.ts";
import type { PairJob, PairResult } from "./pair-worker.ts";
import { rounds, seconds } from "./part.ts";
import { Child } from "./process/child.ts";
import { turns } from "./statistics.ts";

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

/** The results of each library with each number of callers. */
export type PairRounds = ReadonlyMap<Library, ReadonlyMap<number, PairResult[]>>;

/** Measures libraries in turns, each in a process of its own, on a server or a cluster. */
export async function pairRounds(
  compared: readonly Library[],
  kind: "redis" | "cluster",
  ports: readonly number[],
  callerCounts: readonly number[],
): Promise<PairRounds> {
  const processes = new Map<Library, PairProcess>();
  for (const library of compared) processes.set(library, await startPairs(library, kind, ports));
  await warmUp(processes.values(), callerCounts, Math.min(0.5, seconds));
  const results: PairRounds = new Map(
    compared.map((library) => [library, new Map(callerCounts.map((callers) => [callers, []]))]),
  );
  for (let round = 0; round < rounds; round++) {
    for (const callers of callerCounts) {
      for (const library of turns(compared, round)) {
        const process = processes.get(library) as PairProcess;
        const result = await process.run({ kind: "pairs", callers, seconds });
        results.get(library)?.get(callers)?.push(result);
      }
    }
  }
  await Promise.all([...processes.values()].map((process) => process.stop()));
  return results;
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
