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
