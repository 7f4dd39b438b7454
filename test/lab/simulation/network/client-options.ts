/** The options of ioredis that matter to a lock. */
export interface ClientOptions {
  readonly autoResendUnfulfilledCommands: boolean;
  readonly enableOfflineQueue: boolean;
  readonly maxRetriesPerRequest: number;
  readonly commandTimeout: number | undefined;
  readonly connectTimeout: number;
  readonly retryStrategy: (times: number) => number;
  /** How long the other end may take to say goodbye, too. */
  readonly disconnectTimeout: number;
  readonly isCluster: boolean;
  /** The database that every connection begins with. */
  readonly db: number;
}

/** The defaults of ioredis that matter to a lock; the retry strategy is that of ioredis 5. */
export const ioredisDefaults: ClientOptions = {
  autoResendUnfulfilledCommands: true,
  enableOfflineQueue: true,
  maxRetriesPerRequest: 20,
  commandTimeout: undefined,
  connectTimeout: 10_000,
  retryStrategy: (times) => Math.min(50 * times, 2_000),
  disconnectTimeout: 2_000,
  isCluster: false,
  db: 0,
};

/** What a client is duplicated with, and what a Cluster is. */
export type DuplicateOptions =
  | [options: Partial<ClientOptions>]
  | [nodes: readonly never[], options: ClusterOptions];

interface ClusterOptions {
  readonly redisOptions: Partial<ClientOptions>;
  readonly clusterRetryStrategy: ClientOptions["retryStrategy"];
}

/** Those of one node, whatever they were given for. */
export function nodeOptions(given: DuplicateOptions): Partial<ClientOptions> {
  if (given.length === 1) return given[0];
  const { redisOptions, clusterRetryStrategy, ...common } = given[1];
  return { ...common, ...redisOptions, retryStrategy: clusterRetryStrategy };
}
