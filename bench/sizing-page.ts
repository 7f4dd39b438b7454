import { Page } from "../test/docs/page.ts";
import { answerBytes, kinds } from "./orders.ts";
import type { CostRow, Figures } from "./sizing-tables.ts";

/** What the pages say was measured: of an order, of a failover, of a record. */
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
  const [, usage = 0, grown = 0] =
    measured.find(([name = ""]) => name.startsWith("a lock"))?.map(numberIn) ?? [];
  const failovers = sizing
    .tableUnder("What a failover costs")
    .filter(([, seconds = ""]) => / s$/.test(seconds))
    .map(([what = "", seconds = ""]) => ({ what, seconds: numberIn(seconds) }));
  const records = new Page("docs/operations/records.md")
    .tableUnder("Memory")
    .filter((cells) => cells.length === 3)
    .map((cells) => cells.map(numberIn))
    .map(([bytes = 0, , each = 0]) => ({ bytes, grown: each }))
    .filter(({ bytes }) => bytes === 0 || bytes === answerBytes);
  return { costs, lock: { usage, grown }, records, failovers };
}

/** The number that a cell begins with, with thin spaces between thousands; 0 for none. */
function numberIn(cell: string): number {
  return Number(/^\d[\d\u2009]*(?:\.\d+)?/.exec(cell)?.[0].replaceAll("\u2009", "") ?? 0);
}
