import { command } from "../../test/support/command.ts";
import { startServer } from "../../test/support/server-process.ts";
import { until } from "../../test/support/until.ts";
import { acknowledged, type Library, submitLock } from "../libraries.ts";
import { startPairs, warmUp } from "../pair-process.ts";
import type { PairResult } from "../pair-worker.ts";
import { atLeast, type Findings } from "../part.ts";
import { rounds, seconds } from "../settings.ts";
import { medianOf, ratioOf, type Spread, turns } from "../statistics.ts";
import { number, spreadText, table } from "../text.ts";

const callerCounts = [1, 32, 256];
const compared: readonly Library[] = [submitLock, acknowledged];

/** What it costs that a replica confirms every acquire, on one master with one replica. */
export async function acknowledgement(binary: string): Promise<Findings> {
  const fast = ["--repl-diskless-sync-delay", "0"];
  const master = await startServer(binary, { args: fast });
  const replica = await startServer(binary, {
    args: [...fast, "--replicaof", `127.0.0.1 ${master.port}`],
  });
  const online = async () =>
    String(await command(master.port, "INFO", "replication")).includes("state=online");
  await until(online, { what: "the replica to be in step", boundMs: 30_000, everyMs: 20 });
  const sites = [];
  for (const library of compared) {
    const process = await startPairs(library, "redis", [master.port]);
    sites.push({ library, process, results: new Map<number, PairResult[]>() });
  }
  const processes = sites.map(({ process }) => process);
  await warmUp(processes, callerCounts, Math.min(0.5, seconds));
  for (let round = 0; round < rounds; round++) {
    for (const callers of callerCounts) {
      for (const { process, results } of turns(sites, round)) {
        const result = await process.run({ kind: "pairs", callers, seconds });
        results.set(callers, [...(results.get(callers) ?? []), result]);
      }
    }
  }
  await Promise.all(processes.map((process) => process.stop()));
  await replica.stop();
  await master.stop();

  const [without, with1] = sites.map(({ results }) => results);
  const of = (results: typeof without, callers: number): PairResult[] =>
    results?.get(callers) ?? [];
  const rates = (results: typeof without, callers: number): number[] =>
    of(results, callers).map(({ pairsPerSecond }) => pairsPerSecond);
  const ratio = (callers: number): Spread =>
    ratioOf(rates(with1, callers), rates(without, callers));
  const rows = callerCounts.map((callers) => [
    number(callers),
    number(medianOf(rates(without, callers))),
    number(medianOf(rates(with1, callers))),
    spreadText(ratio(callers)),
    ...[without, with1].map((results) =>
      number(medianOf(of(results, callers).map(({ acquireP50Ms }) => acquireP50Ms)), 3),
    ),
  ]);
  const head = ["callers", "pairs a second", "with `ackReplicas: 1`", "without = 1.00"];
  return {
    text: `## Confirmed by a replica

One master with one replica, and the same pairs with \`ackReplicas: 1\`.

${table([...head, "acquire p50 ms", "with it"], rows)}`,
    targets: [
      atLeast(
        "`ackReplicas: 1` against without, 32 callers",
        0.5,
        ratio(32).median,
        spreadText(ratio(32)),
      ),
    ],
  };
}
