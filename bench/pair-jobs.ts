import type { ProfileJob } from "./process/own-share.ts";

/** What a process with one library is asked to do. */
export type PairJob =
  | ProfileJob
  /** Acquire and release, this many callers at once, each pair for another user. */
  | { readonly kind: "pairs"; readonly callers: number; readonly seconds: number }
  /** Take locks and keep them; how much heap they took. */
  | { readonly kind: "hold"; readonly locks: number }
  /** Give all of them back. */
  | { readonly kind: "let-go" };

export interface PairResult {
  readonly pairsPerSecond: number;
  readonly pairs: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  /** The acquire alone. */
  readonly acquireP50Ms: number;
  /** Processor time of this process, in microseconds. */
  readonly cpuMicrosPerPair: number;
  readonly heapBytesPerLock: number;
  readonly ownShare: number;
}
