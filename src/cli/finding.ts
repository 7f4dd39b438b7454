/**
 * - `ok`: looked at, and right.
 * - `warn`: locks are lost or refused when something else goes wrong.
 * - `fail`: locks are lost or refused as it is.
 * - `unknown`: it could not be looked at.
 */
export type Level = "ok" | "warn" | "fail" | "unknown";

export interface Finding {
  readonly level: Level;
  /** A stable name of what was looked at. */
  readonly check: string;
  readonly text: string;
  /** What to do. */
  readonly remedy?: string;
}
