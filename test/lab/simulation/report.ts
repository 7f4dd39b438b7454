import type { Violation } from "./invariants/verdict.ts";

/** What one run, or many together, did and found. */
export interface Report {
  readonly counts: Map<string, number>;
  violation: Violation | undefined;
  /** Only where it was asked for. */
  readonly timeline: string[];
}

export function count(counts: Map<string, number>, what: string, by = 1): void {
  counts.set(what, (counts.get(what) ?? 0) + by);
}
