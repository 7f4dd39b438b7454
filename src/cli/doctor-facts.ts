/** Of one server or section of INFO: field and value. */
export type Info = Readonly<Record<string, string>>;

/** The times of the lock that Redis is looked at for. */
export interface Times {
  readonly ttlMs: number;
  readonly acquireTimeoutMs: number;
  readonly commandTimeoutMs: number;
}

/** What was read of one server. What is `undefined` was not permitted. */
export interface ServerFacts {
  readonly address: string;
  /** Why nothing was read: of a Cluster, whose other servers may be well. */
  readonly failure?: string;
  readonly info: Info | undefined;
  /** Of another connection to the same address; not on a Cluster. */
  readonly secondRunId: string | undefined;
  readonly isClusterNode: boolean;
  /** CLUSTER INFO. */
  readonly cluster: Info | undefined;
  readonly nodeTimeoutMs: number | undefined;
  readonly latency:
    | { readonly count: number; readonly medianMs: number; readonly p99Ms: number }
    | undefined;
  /** This host's clock against the server's. */
  readonly clock: { readonly aheadMs: number; readonly errorMs: number } | undefined;
}

/** What was read of one Sentinel. */
export interface SentinelFacts {
  readonly address: string;
  readonly downAfterMs: number | undefined;
  /** What SENTINEL CKQUORUM said. */
  readonly quorum: string | undefined;
  /** Why nothing was read. */
  readonly failure: string | undefined;
}

/** What was counted of the keys of one prefix. */
export interface PrefixFacts {
  readonly keyPrefix: string;
  readonly foreign: number;
  /** How many of the foreign ones have no expiry. */
  readonly endless: number;
  /** How many of ours have more life than they can have been given. */
  readonly setBack: number;
  readonly isComplete: boolean;
}

/** Everything that `doctor` goes by. */
export interface Facts {
  readonly times: Times;
  readonly servers: readonly ServerFacts[];
  readonly sentinels: readonly SentinelFacts[];
  /** A throwaway lock; `undefined` where a replica would refuse it anyway. */
  readonly check: { readonly tookMs: number; readonly failure: string | undefined } | undefined;
  /** `undefined` where SCAN is not permitted. */
  readonly prefixes: readonly PrefixFacts[] | undefined;
}
