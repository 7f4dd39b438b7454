import type { Kind, OrderCost } from "./orders.ts";
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
  /** Redis' memory for a lock whose order is under way. */
  readonly lockBytes: number;
}

const rates = [10_000, 100_000];

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
  const head = ["an order", "script calls", "processor", "to Redis", "from Redis"];
  return table(head, rows);
}

/** What was measured, as it is read back by the test of the page. */
export function measuredTables({ costs, lockBytes }: Figures): string {
  const head = [
    "an order",
    "script calls",
    "processor",
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
  const memory = `A lock whose order is under way takes ${number(lockBytes)} B of Redis' memory.`;
  return `${table(head, rows)}\n\n${memory}`;
}

/**
 * A shop by its orders a second, at the processor cost of the second way: with many orders, Redis finds
 * several whenever it looks.
 */
export function shopTable({ costs, lockBytes }: Figures): string {
  const kinds = [...new Set(costs.map(({ kind }) => kind))];
  const rows = rates.flatMap((rate) =>
    kinds.map((kind) => {
      const own = costs.filter((cost) => cost.kind === kind);
      const [apart, busy] = own as [CostRow, CostRow];
      return [
        `${number(rate)}, ${kind}`,
        number(cores(rate, busy), 2),
        number(Math.ceil(cores(rate, busy) / shareOfMaster)),
        ...[apart.bytesIn, apart.bytesOut, apart.replicaBytes].map((bytes) =>
          megabits(rate, bytes),
        ),
        size(rate * orderSeconds * lockBytes),
      ];
    }),
  );
  const head = [
    "orders a second",
    "cores",
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
