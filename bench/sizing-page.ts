import { Page } from "../test/docs/page.ts";
import { kinds } from "./orders.ts";
import type { CostRow, Figures } from "./sizing-tables.ts";

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
