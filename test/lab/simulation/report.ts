import type { Violation } from "./invariants/verdict.ts";

/** What one run, or many together, did and found. */
export interface Report {
  readonly counts: Map<string, number>;
  violation: Violation | undefined;
  /** Only where it was asked for. */
  readonly timeline: string[];
}

/** Who writes the report of one run. */
export interface Reporter {
  count(what: string): void;
  /** One line of the timeline. */
  note(text: () => string): void;
}

export function count(counts: Map<string, number>, what: string, by = 1): void {
  counts.set(what, (counts.get(what) ?? 0) + by);
}
