import { command } from "../../test/support/command.ts";
import { startMasters } from "../../test/support/masters.ts";
import { startServer } from "../../test/support/server-process.ts";
import { until } from "../../test/support/until.ts";
import {
  acknowledged,
  autoPipelined,
  type Library,
  plain,
  redisSemaphore,
  scriptsCorked,
  submitLock,
} from "../libraries.ts";
import {
  type PairProcess,
  type PairRounds,
  pairRounds,
  startPairs,
  warmUp,
} from "../pair-process.ts";
import type { PairResult } from "../pair-worker.ts";
import { atLeast, atMost, type Findings, rounds, seconds, type Target } from "../part.ts";
import { medianOf, number, ratioOf, type Spread, spreadText, table, turns } from "../statistics.ts";

const masters = 3;
/** How many callers; how many pairs a second, and how much processor time, plain being 1. */
const goals: readonly [callers: number, ofPlain: number, time: number][] = [
  [1, 0.8, 1.2],
  [32, 1.5, 0.6],
  [256, 3.3, 0.27],
];
const callerCounts = goals.map(([callers]) => callers);
const onCluster: readonly Library[] = [plain, autoPipelined, submitLock, scriptsCorked];

/** One process on a Cluster, where each key is on one of three servers. */
export async function cluster(binary: string): Promise<Findings> {
  // A node that has met no other does not know its own address, and clients are told none.
  const nodes = await startMasters(binary, masters, ["--cluster-announce-ip", "127.0.0.1"]);
  const ports = nodes.map(({ port }) => port);
  const cells = await pairRounds(onCluster, "cluster", ports, callerCounts);
  await Promise.all(nodes.map((node) => node.stop()));
  return { text: textOf(cells), targets: targetsOf(cells) };
}

type Pick = (result: PairResult) => number;
const rate: Pick = ({ pairsPerSecond }) => pairsPerSecond;
const p99: Pick = ({ p99Ms }) => p99Ms;
const processor: Pick = ({ cpuMicrosPerPair }) => cpuMicrosPerPair;

function all(cells: PairRounds, library: Library, callers: number, pick: Pick): number[] {
  return (cells.get(library)?.get(callers) ?? []).map(pick);
}

function textOf(cells: PairRounds): string {
  const tables = callerCounts.map((callers) => {
    const rows = onCluster.map((library) => {
      const of = (pick: Pick) => all(cells, library, callers, pick);
      const toPlain = (pick: Pick) =>
        spreadText(ratioOf(of(pick), all(cells, plain, callers, pick)));
      return [
        library.name,
        number(medianOf(of(rate))),
        toPlain(rate),
        number(medianOf(of(p99)), 3),
        toPlain(p99),
        number(medianOf(of(processor)), 1),
        toPlain(processor),
      ];
    });
    const name = callers === 1 ? "1 caller" : `${callers} callers`;
    const head = [
      name,
      "pairs a second",
      "plain = 1.00",
      "p99 ms",
      "plain = 1.00",
      "processor µs a pair",
      "plain = 1.00",
    ];
    return table(head, rows);
  });
  return `## A Cluster

One process on ${masters} masters, with the libraries of the first table. "${scriptsCorked.name}" is ${scriptsCorked.what}.

${tables.join("\n\n")}`;
}

function targetsOf(cells: PairRounds): Target[] {
  const ratio = (callers: number, to: Library, pick: Pick = rate) =>
    ratioOf(all(cells, submitLock, callers, pick), all(cells, to, callers, pick));
  const targets = goals.flatMap(([callers, ofPlain, time]): Target[] => {
    const name = `Cluster of ${masters}, ${callers === 1 ? "1 caller" : `${callers} callers`}`;
    const against = (to: Library, least: number): Target => {
      const spread = ratio(callers, to);
      return atLeast(`${name}, against ${to.name}`, least, spread.median, spreadText(spread));
    };
    const limit = ratioOf(
      all(cells, scriptsCorked, callers, rate),
      all(cells, plain, callers, rate),
    );
    const cost = ratio(callers, plain, processor);
    return [
      atMost(`${name}, processor time a pair of plain's`, time, cost.median, spreadText(cost)),
      against(scriptsCorked, 0.9),
      against(autoPipelined, 1),
      { ...against(plain, ofPlain), limit: `${scriptsCorked.name}: ${spreadText(limit)}` },
    ];
  });
  const tail = ratio(256, plain, p99);
  const measure = `Cluster of ${masters}, p99 against plain, 256 callers`;
  return [...targets, atMost(measure, 0.7, tail.median, spreadText(tail))];
}

const counts = [1, 2, 4];
const callersEach = 32;
const sharing: readonly Library[] = [plain, submitLock, redisSemaphore];

/** Several processes share one Redis. */
export async function processes(binary: string): Promise<Findings> {
  const server = await startServer(binary);
  const crews = new Map<Library, PairProcess[]>();
  for (const library of sharing) {
    const crew = Array.from({ length: Math.max(...counts) }, () =>
      startPairs(library, "redis", [server.port]),
    );
    crews.set(library, await Promise.all(crew));
  }
  for (const crew of crews.values()) await warmUp(crew, [callersEach], Math.min(0.5, seconds));

  const rates = new Map(counts.map((count) => [count, new Map<Library, number[]>()]));
  for (let round = 0; round < rounds; round++) {
    for (const [count, of] of rates) {
      for (const library of turns(sharing, round)) {
        const crew = (crews.get(library) ?? []).slice(0, count);
        const results = await Promise.all(
          crew.map((each) => each.run({ kind: "pairs", callers: callersEach, seconds })),
        );
        const sum = results.reduce((total, { pairsPerSecond }) => total + pairsPerSecond, 0);
        of.set(library, [...(of.get(library) ?? []), sum]);
      }
    }
  }
  await Promise.all([...crews.values()].flat().map((each) => each.stop()));
  await server.stop();

  const rows = [...rates].flatMap(([count, of]) =>
    sharing.map((library) => [
      `${count} × ${library.name}`,
      number(medianOf(of.get(library) ?? [])),
      spreadText(ratioOf(of.get(library) ?? [], of.get(plain) ?? [])),
    ]),
  );
  return {
    text: `## Several processes on one Redis

${callersEach} callers in each process; the sum of their pairs a second. With more processes than processors they share those with Redis.

${table(["processes", "pairs a second", "plain = 1.00"], rows)}`,
    targets: [],
  };
}

const withReplica: readonly Library[] = [submitLock, acknowledged];

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
  const results = await pairRounds(withReplica, "redis", [master.port], callerCounts);
  await replica.stop();
  await master.stop();

  const rates = (library: Library, callers: number) => all(results, library, callers, rate);
  const ratio = (callers: number): Spread =>
    ratioOf(rates(acknowledged, callers), rates(submitLock, callers));
  const rows = callerCounts.map((callers) => [
    number(callers),
    number(medianOf(rates(submitLock, callers))),
    number(medianOf(rates(acknowledged, callers))),
    spreadText(ratio(callers)),
    ...withReplica.map((library) =>
      number(medianOf(all(results, library, callers, ({ acquireP50Ms }) => acquireP50Ms)), 3),
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
