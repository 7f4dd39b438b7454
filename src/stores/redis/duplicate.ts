import { databaseOf, isCluster, type RedisClient } from "./ioredis.ts";

/** What ioredis has besides. Every member is looked at only where it is there. */
interface Internals {
  readonly options?: {
    readonly connectTimeout?: number;
    readonly sentinelCommandTimeout?: number;
    readonly slotsRefreshTimeout?: number;
    readonly redisOptions?: object;
  };
}

/** How long the second connection may take to come up: it is opened when an answer is overdue. */
const connectTimeoutMs = 1_000;

/** How long a Sentinel, or a node of a Cluster, may take to say who serves, before another is asked. */
const askTimeoutMs = 750;

/**
 * How often the second connection of a Cluster asks who serves which slots. It may have been opened
 * before the failover that it was opened for, and the master that is away will never tell.
 */
const slotsRefreshIntervalMs = 500;

/**
 * Another connection to the same place and the same database, which never queues and never
 * re-sends: the lock itself asks again for what was not answered.
 */
export function duplicate(client: RedisClient): RedisClient {
  const { options } = client as Internals;
  const connectTimeout = Math.min(options?.connectTimeout ?? connectTimeoutMs, connectTimeoutMs);
  const shorter = (ms: number | undefined) => Math.min(ms ?? askTimeoutMs, askTimeoutMs);
  const connection = {
    connectTimeout,
    autoResendUnfulfilledCommands: false,
    commandTimeout: undefined,
    // Fails the commands in flight as soon as the connection is lost.
    maxRetriesPerRequest: 0,
  };
  const common = {
    enableOfflineQueue: false,
    enableAutoPipelining: false,
    lazyConnect: false,
  };
  const retry = (times: number) => Math.min(50 * times, 500);
  if (isCluster(client)) {
    const duplicateCluster = client.duplicate as (nodes: [], options: object) => unknown;
    return duplicateCluster.call(client, [], {
      ...common,
      redisOptions: { ...options?.redisOptions, ...connection },
      clusterRetryStrategy: retry,
      // It would ask one node, any, and wait for ever for one that is silent.
      enableReadyCheck: false,
      slotsRefreshInterval: slotsRefreshIntervalMs,
      slotsRefreshTimeout: shorter(options?.slotsRefreshTimeout),
    }) as RedisClient;
  }
  const duplicateRedis = client.duplicate as (options: object) => unknown;
  return duplicateRedis.call(client, {
    ...common,
    ...connection,
    retryStrategy: retry,
    // A Sentinel may be silent, too: often it is on the host of the master that is.
    sentinelCommandTimeout: shorter(options?.sentinelCommandTimeout),
    // `select` at run time changes the database of the connection, not the options that are copied.
    db: databaseOf(client),
  }) as RedisClient;
}
