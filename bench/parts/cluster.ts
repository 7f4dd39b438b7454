import { startMasters } from "../../test/support/masters.ts";
import { autoPipelined, type Library, plain, scriptsCorked, submitLock } from "../libraries.ts";
import { type PairRounds, pairRounds } from "../pair-process.ts";
import type { PairResult } from "../pair-worker.ts";
import { atLeast, atMost, type Findings, type Target } from "../part.ts";
import { medianOf, ratioOf } from "../statistics.ts";
import { number, spreadText, table } from "../text.ts";

const masters = 3;
/** How many callers; how many pairs a second, and how much processor time, plain being 1. */
const goals: readonly [callers: number, ofPlain: number, time: number][] = [
  [1, 0.8, 1.2],
  [32, 1.5, 0.6],
  [256, 3.3, 0.27],
];
const callerCounts = goals.map(([callers]) => callers);
const compared: readonly Library[] = [plain, autoPipelined, submitLock, scriptsCorked];

/** One process on a Cluster, where each key is on one of three servers. */
export async function cluster(binary: string): Promise<Findings> {
  // A node that has met no other does not know its own address, and clients are told none.
  const nodes = await startMasters(binary, masters, ["--cluster-announce-ip", "127.0.0.1"]);
  const ports = nodes.map(({ port }) => port);
  const cells = await pairRounds(compared, "cluster", ports, callerCounts);
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
    const rows = compared.map((library) => {
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
