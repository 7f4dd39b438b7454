/** The median of several rounds, and the least and the most of them. */
export interface Spread {
  readonly median: number;
  readonly least: number;
  readonly most: number;
}

export function spreadOf(values: readonly number[]): Spread {
  const sorted = [...values].sort((a, b) => a - b);
  return {
    median: quantile(sorted, 0.5),
    least: sorted[0] ?? Number.NaN,
    most: sorted.at(-1) ?? Number.NaN,
  };
}

/** Each round against the same round of something else: what slows a machine down slows both. */
export function ratioOf(values: readonly number[], to: readonly number[]): Spread {
  return spreadOf(values.map((value, round) => value / (to[round] ?? Number.NaN)));
}

/** The middle half of several rounds: one odd round says nothing about it. */
export interface Quartiles {
  readonly median: number;
  readonly lower: number;
  readonly upper: number;
}

function quartilesOf(values: readonly number[]): Quartiles {
  const sorted = [...values].sort((a, b) => a - b);
  return {
    median: quantile(sorted, 0.5),
    lower: quantile(sorted, 0.25),
    upper: quantile(sorted, 0.75),
  };
}

/** As {@link ratioOf}, with quartiles. */
export function pairedRatio(values: readonly number[], to: readonly number[]): Quartiles {
  return quartilesOf(values.map((value, round) => value / (to[round] ?? Number.NaN)));
}

export function medianOf(values: readonly number[]): number {
  return spreadOf(values).median;
}

/** @param sorted ascending. Between two values it is interpolated. */
export function quantile(sorted: ArrayLike<number>, share: number): number {
  if (sorted.length === 0) return Number.NaN;
  const at = (sorted.length - 1) * share;
  const below = sorted[Math.floor(at)] ?? Number.NaN;
  const above = sorted[Math.ceil(at)] ?? Number.NaN;
  return below + (above - below) * (at - Math.floor(at));
}

/** The order of one round: each starts with another one, so that nothing always follows the same. */
export function turns<Item>(items: readonly Item[], round: number): Item[] {
  const first = round % Math.max(1, items.length);
  return [...items.slice(first), ...items.slice(0, first)];
}

/** A Markdown table; the first column is text, the others are numbers. */
export function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]): string => `| ${cells.join(" | ")} |`;
  const rule = head.map((_, column) => (column === 0 ? "---" : "---:"));
  return [line(head), line(rule), ...rows.map(line)].join("\n");
}

/** `1.79 (1.70–1.85)`. */
export function spreadText({ median, least, most }: Spread, digits = 2): string {
  return `${number(median, digits)} (${number(least, digits)}–${number(most, digits)})`;
}

/** `0.97 [0.95–0.99]`: the median and the quartiles. */
export function quartilesText({ median, lower, upper }: Quartiles, digits = 2): string {
  return `${number(median, digits)} [${number(lower, digits)}–${number(upper, digits)}]`;
}

/** With a thin space between thousands. */
export function number(value: number, digits = 0): string {
  if (Number.isNaN(value)) return "–";
  const [whole = "", fraction] = value.toFixed(digits).split(".");
  const grouped = whole.replace(/\B(?=(\d{3})+$)/g, "\u2009");
  return fraction === undefined ? grouped : `${grouped}.${fraction}`;
}
