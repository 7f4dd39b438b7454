import type { Kind, LockMemory, OrderCost } from "./orders.ts";
import { number, table } from "./text.ts";

/** One row of what was measured. */
export interface CostRow extends OrderCost {
  readonly kind: Kind;
  /** The name of the way. */
  readonly way: string;
}

/** What everything else follows from. */
export interface Figures {
  readonly costs: readonly CostRow[];
  readonly lock: LockMemory;
}

const rates = [1_000, 10_000, 100_000];

/** How much of a core a master may be busy with, so that one is enough for twice as many. */
const shareOfMaster = 0.5;

/** How long an order keeps its lock, in seconds. */
const orderSeconds = 1;

/** What was measured on a Cluster, whose masters have no replica here. */
export function clusterTable(costs: readonly CostRow[]): string {
  const rows = costs.map((cost) => [
    `${cost.kind}, ${cost.way}`,
    number(cost.calls, 2),
    `${number(cost.processorMicros, 1)} µs`,
    ...[cost.bytesIn, cost.bytesOut].map((bytes) => `${number(bytes)} B`),
  ]);
  const head = ["an order", "script calls", "processor of the masters", "to them", "from them"];
  return table(head, rows);
}

/** What was measured, as it is read back by the test of the page. */
export function measuredTables({ costs, lock }: Pick<Figures, "costs" | "lock">): string {
  const head = [
    "an order, and how orders come",
    "script calls",
    "processor of Redis",
    "to Redis",
    "from Redis",
    "to each replica",
  ];
  const rows = costs.map((cost) => [
    `${cost.kind}, ${cost.way}`,
    number(cost.calls, 2),
    `${number(cost.processorMicros, 1)} µs`,
    ...[cost.bytesIn, cost.bytesOut, cost.replicaBytes].map((bytes) => `${number(bytes)} B`),
  ]);
  const memory = table(
    ["", "`MEMORY USAGE`", "memory of Redis for each"],
    [["a lock whose order is under way", `${number(lock.usage)} B`, `${number(lock.grown)} B`]],
  );
  return `${table(head, rows)}\n\n${memory}`;
}

/** A shop by its orders a second. */
export function shopTable({ costs, lock }: Figures): string {
  const kinds = [...new Set(costs.map(({ kind }) => kind))];
  const rows = rates.flatMap((rate) =>
    kinds.map((kind) => {
      const own = costs.filter((cost) => cost.kind === kind);
      const [apart] = own as [CostRow];
      return [
        `${number(rate)}, ${kind}`,
        ...own.map((cost) => number(cores(rate, cost), 2)),
        number(mastersFor(rate, own)),
        ...[apart.bytesIn, apart.bytesOut, apart.replicaBytes].map((bytes) =>
          megabits(rate, bytes),
        ),
        size(rate * orderSeconds * lock.grown),
      ];
    }),
  );
  const ways = new Set(costs.map(({ way }) => way.split(":")[0]));
  const head = [
    "orders a second",
    ...[...ways].map((way) => `cores, ${way}`),
    "masters",
    "Mbit/s in",
    "Mbit/s out",
    "Mbit/s to each replica",
    "locks under way",
  ];
  return table(head, rows);
}

function cores(rate: number, { processorMicros }: OrderCost): number {
  return (rate * processorMicros) / 1e6;
}

/**
 * By the second way: at few orders a second Redis wakes up for each of them, which it has the time
 * for; at many it finds several whenever it looks.
 */
function mastersFor(rate: number, [, busy]: readonly CostRow[]): number {
  return busy === undefined ? Number.NaN : Math.ceil(cores(rate, busy) / shareOfMaster);
}

function megabits(rate: number, bytes: number): string {
  return number((rate * bytes * 8) / 1e6, 1);
}

function size(bytes: number): string {
  const units = ["kB", "MB", "GB", "TB"];
  let value = bytes / 1e3;
  let unit = 0;
  for (; value >= 999.5 && unit < units.length - 1; unit++) value /= 1e3;
  return `${number(value, value < 10 ? 1 : 0)} ${units[unit]}`;
}
