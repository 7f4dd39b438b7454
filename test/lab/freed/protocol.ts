import type { LostReason, SubmitLockOptions } from "../../../src/index.ts";

export interface HolderSettings {
  readonly port: number;
  readonly users: readonly string[];
  readonly times: Partial<Omit<SubmitLockOptions, "store">>;
}

/** What a holder tells its parent. Times are those of the clock that all processes share. */
export type FromHolder =
  | { readonly begun: string; readonly user: string; readonly at: number }
  | { readonly told: string; readonly reason: LostReason; readonly at: number }
  /** Until when each lease is valid, as far as the holder knows at the moment. */
  | { readonly believed: readonly (readonly [ownerId: string, until: number])[] };
