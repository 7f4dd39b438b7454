import { startMasters } from "../../test/support/masters.ts";
import { startServer } from "../../test/support/server-process.ts";
import {
  type Library,
  nodeRedisPlain,
  nodeRedisSubmitLock,
  plain,
  submitLock,
} from "../libraries.ts";
import { pairRounds } from "../pair-process.ts";
import type { PairResult } from "../pair-worker.ts";
import { atLeast, atMost, type Findings, type Target } from "../part.ts";
import { medianOf, number, pairedRatio, table } from "../statistics.ts";

const callerCounts = [1, 32, 256] as const;
const places = [
  { kind: "redis", name: "one server", masters: 1 },
  { kind: "cluster", name: "a Cluster of 3", masters: 3 },
] as const;
/** This package and what it is measured against, on each client library. */
const rows = [
  { client: "ioredis", own: submitLock, plain },
  { client: "node-redis", own: nodeRedisSubmitLock, plain: nodeRedisPlain },
] as const;
const compared: readonly Library[] = rows.flatMap(({ own, plain: other }) => [own, other]);

type Pick = (result: PairResult) => number;
const rate: Pick = ({ pairsPerSecond }) => pairsPerSecond;
const processor: Pick = ({ cpuMicrosPerPair }) => cpuMicrosPerPair;

/** The same pairs on both client libraries, each beside what one writes with that one alone. */
export async function nodeRedis(binary: string): Promise<Findings> {
  const tables: string[] = [];
  const targets: Target[] = [];
  for (const { kind, name, masters } of places) {
    const results = await measured(binary, kind, masters);
    for (const callers of callerCounts) {
      const of = (library: Library, pick: Pick) => results(library, callers).map(pick);
      const ratios = rows.map((row) => ({
        ...row,
        rate: pairedRatio(of(row.own, rate), of(row.plain, rate)),
        processor: pairedRatio(of(row.own, processor), of(row.plain, processor)),
      }));
      const text = (ratio: { median: number; lower: number; upper: number }) =>
        `${number(ratio.median, 2)} (${number(ratio.lower, 2)} to ${number(ratio.upper, 2)})`;
      const where = `${name}, ${callers === 1 ? "1 caller" : `${callers} callers`}`;
      tables.push(
        table(
          [where, "pairs a second", "of plain", "processor µs a pair", "of plain"],
          ratios.map((row) => [
            `submit-lock on ${row.client}`,
            number(medianOf(of(row.own, rate))),
            text(row.rate),
            number(medianOf(of(row.own, processor)), 1),
            text(row.processor),
          ]),
        ),
      );
      const [ioredis, other] = ratios as [(typeof ratios)[0], (typeof ratios)[0]];
      const least = Number(ioredis.rate.median.toFixed(2));
      const most = Number(ioredis.processor.median.toFixed(2));
      const measure = `node-redis beside plain node-redis, ${where}`;
      targets.push(
        atLeast(
          `${measure}, as ioredis beside its own`,
          least,
          other.rate.median,
          text(other.rate),
        ),
        atMost(`${measure}, processor time`, most, other.processor.median, text(other.processor)),
      );
    }
  }
  return {
    text: `## On node-redis

Acquire and release as above, on both client libraries. "Of plain" is beside \`SET NX PX\` and a compare-and-delete script with the same client, as one writes them: node-redis' own time-out of 5 s for each command, which is on by default, is on there. Quartiles of the paired ratios in brackets.

${tables.join("\n\n")}`,
    targets,
  };
}

async function measured(binary: string, kind: "redis" | "cluster", masters: number) {
  const announce = ["--cluster-announce-ip", "127.0.0.1"];
  const isCluster = kind === "cluster";
  const nodes = isCluster
    ? await startMasters(binary, masters, announce)
    : [await startServer(binary)];
  const ports = nodes.map(({ port }) => port);
  const results = await pairRounds(compared, kind, ports, callerCounts);
  await Promise.all(nodes.map((node) => node.stop()));
  return (library: Library, callers: number) => results.get(library)?.get(callers) ?? [];
}
