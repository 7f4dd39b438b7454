import { Page } from "../test/docs/page.ts";
import { number, table } from "./statistics.ts";

/** How orders come to Redis. */
export interface Way {
  /** The page of sizing says what it stands for. */
  readonly name: string;
  readonly connections: number;
  /** How many orders each connection has under way; without it they come at random times. */
  readonly callers?: number;
  readonly perSecond?: number;
  readonly seconds: number;
}

// Short: what is kept of each takes memory until the end.
export const gathered: Way = {
  name: "gathered",
  connections: 1,
  callers: 256,
  seconds: 0.5,
};

export const ways: readonly Way[] = [
  {
    name: "apart",
    connections: 64,
    perSecond: 1_000,
    seconds: 2,
  },
  { name: "busy", connections: 64, callers: 1, seconds: 1.5 },
  gathered,
];

export const kinds = ["lock", "once"] as const;
export type Kind = (typeof kinds)[number];

/** What one order takes of Redis: its acquire, and its release or its record. */
export interface OrderCost {
  readonly calls: number;
  readonly processorMicros: number;
  readonly bytesIn: number;
  readonly bytesOut: number;
  readonly replicaBytes: number;
}

/** The length of the answer that is kept of an order with "once". */
export const answerBytes = 1_024;

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

/** The measured costs of an order and of a lock, read from the page. */
export function figuresOf(): Figures {
  const sizing = new Page("docs/operations/sizing.md");
  const measured = sizing.tableUnder("What an order costs");
  const costs = measured.flatMap(([name = "", ...cells]): CostRow[] => {
    const kind = kinds.find((each) => name.startsWith(`${each}, `));
    // Those of a Cluster have no column for replicas.
    if (kind === undefined || cells.length < 5) return [];
    const [calls = 0, processorMicros = 0, bytesIn = 0, bytesOut = 0, replicaBytes = 0] =
      cells.map(numberIn);
    const way = name.slice(kind.length + 2);
    return [{ kind, way, calls, processorMicros, bytesIn, bytesOut, replicaBytes }];
  });
  const [, ofLock = ""] = /takes (\S+) B of Redis' memory/.exec(sizing.text) ?? [];
  return { costs, lockBytes: numberIn(ofLock) };
}

/** The number that a cell begins with, with thin spaces between thousands; 0 for none. */
function numberIn(cell: string): number {
  return Number(/^\d[\d\u2009]*(?:\.\d+)?/.exec(cell)?.[0].replaceAll("\u2009", "") ?? 0);
}
