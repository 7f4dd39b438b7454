import type { Cell } from "./cells.ts";
import type { Measures } from "./worker.ts";

/** The results of each cell, round by round. */
export type Results = ReadonlyMap<string, readonly Measures[]>;

/** Measures all cells in every round, beginning each with another one: none always follows the same. */
export async function measured(cells: readonly Cell[], rounds: number): Promise<Results> {
  const results = new Map<string, Measures[]>(cells.map(({ name }) => [name, []]));
  for (let round = 0; round < rounds; round++) {
    const first = round % cells.length;
    for (const cell of [...cells.slice(first), ...cells.slice(0, first)]) {
      results.get(cell.name)?.push(await cell.run());
    }
  }
  return results;
}

/** A Markdown table: medians, and in brackets the paired ratios to the base with their quartiles. */
export function tableOf(cells: readonly Cell[], results: Results): string {
  const columns = Object.keys(results.get(cells[0]?.name ?? "")?.[0] ?? {});
  const values = (name: string, column: string) =>
    (results.get(name) ?? []).map((measures) => measures[column] ?? Number.NaN);
  const rows = cells.map(({ base, name }) =>
    columns.map((column) => {
      const own = values(name, column);
      const median = rounded(quantile(own, 0.5));
      if (base === name) return median;
      const bases = values(base, column);
      return `${median} (${quartiles(own.map((value, round) => value / (bases[round] ?? Number.NaN)))})`;
    }),
  );
  const lines = [
    ["", ...columns],
    ["---", ...columns.map(() => "---:")],
    ...rows.map((row, at) => [cells[at]?.name ?? "", ...row]),
  ];
  return lines.map((cells) => `| ${cells.join(" | ")} |`).join("\n");
}

function quartiles(ratios: readonly number[]): string {
  const [lower, median, upper] = [0.25, 0.5, 0.75].map((at) => quantile(ratios, at).toFixed(2));
  return `${median}, ${lower}–${upper}`;
}

function quantile(values: readonly number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  const at = (sorted.length - 1) * share;
  const below = sorted[Math.floor(at)] ?? Number.NaN;
  return below + ((sorted[Math.ceil(at)] ?? Number.NaN) - below) * (at % 1);
}

function rounded(value: number): string {
  if (value >= 1_000) return `${Math.round(value)}`.replace(/\B(?=(\d{3})+$)/g, "\u2009");
  return value.toPrecision(3);
}
