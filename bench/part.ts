/** What a part of the bench found out. */
export interface Findings {
  /** Markdown, with headings of the second level. */
  readonly text: string;
  readonly targets: readonly Target[];
  /** Pictures by file name. */
  readonly pictures?: Readonly<Record<string, string>>;
}

/** One line of the table at the end. */
export interface Target {
  readonly measure: string;
  readonly target: string;
  readonly measured: string;
  readonly met: boolean;
  /** What stands in the way, measured in the same run. */
  readonly limit?: string;
}

/** @param binary the Redis server to start. */
export type Part = (binary: string) => Promise<Findings>;

export function atLeast(measure: string, least: number, value: number, measured: string): Target {
  return { measure, target: `≥ ${least}`, measured, met: value >= least };
}

export function atMost(
  measure: string,
  most: number,
  value: number,
  measured: string,
  unit = "",
): Target {
  return { measure, target: `≤ ${most}${unit}`, measured, met: value <= most };
}

/** How long one measurement lasts. Everything else follows from it and from the rounds. */
export const seconds = positive("BENCH_SECONDS", 0.6);

/** How often everything is measured. What is compared takes turns within a round. */
export const rounds = Math.max(1, Math.round(positive("BENCH_ROUNDS", 7)));

function positive(name: string, otherwise: number): number {
  const value = Number(process.env[name] ?? otherwise);
  if (!(value > 0)) throw new Error(`${name}: expected a number above 0`);
  return value;
}
