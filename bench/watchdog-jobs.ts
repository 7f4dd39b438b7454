/** What the process with the many leases is asked to do. */
export interface WatchdogJob {
  readonly leases: number;
  /** Over how long they are acquired, in seconds; 0 is all at once, so that their watchdogs stay in step. */
  readonly overSeconds: number;
  readonly watchSeconds: number;
}

export interface WatchdogResult {
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly maxMs: number;
  /** Leases that are still valid at the end. */
  readonly alive: number;
}
