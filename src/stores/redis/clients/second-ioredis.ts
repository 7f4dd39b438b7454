import { connectTimeoutOf, pauseBeforeConnect } from "./addresses.ts";
import type { IoredisClient, IoredisInternals } from "./ioredis.ts";

/** How long a duplicate waits for a Sentinel or node to name the master, before it asks another. */
const askTimeoutMs = 750;

/**
 * The pause, in ms, before a duplicate of a Cluster asks for the slots again: a master that is away
 * announces no failover.
 */
const slotsRefreshIntervalMs = 500;

/** A second client. Outside a Cluster, it never sends a command again, because the lock does. */
export function openSecond(client: IoredisInternals, database: number): IoredisClient {
  const { isCluster, options } = client;
  const connectTimeout = connectTimeoutOf(options?.connectTimeout);
  const shorter = (ms: number | undefined) => Math.min(ms ?? askTimeoutMs, askTimeoutMs);
  const connection = {
    connectTimeout,
    autoResendUnfulfilledCommands: false,
    commandTimeout: undefined,
    // Fails commands in flight as soon as their connection is lost; a Cluster may send them again.
    maxRetriesPerRequest: 0,
    // A full server's refusal answers the first command. ioredis drops errors of CLIENT SETINFO.
    disableClientInfo: true,
  };
  const common = { enableOfflineQueue: false, enableAutoPipelining: false, lazyConnect: false };
  // ioredis counts the tries from 1.
  const retry = (times: number) => pauseBeforeConnect(times - 1);
  if (isCluster === true) {
    const duplicateCluster = client.duplicate as (nodes: unknown[], options: object) => unknown;
    return duplicateCluster.call(client, knownNodes(client), {
      ...common,
      redisOptions: { ...options?.redisOptions, ...connection },
      clusterRetryStrategy: retry,
      // The check would ask any one node, and wait without end for a silent one.
      enableReadyCheck: false,
      slotsRefreshInterval: slotsRefreshIntervalMs,
      slotsRefreshTimeout: shorter(options?.slotsRefreshTimeout),
    }) as IoredisClient;
  }
  const duplicateRedis = client.duplicate as (options: object) => IoredisClient;
  // Pass all Sentinels that the first client knows: the named one may be on the lost master's host.
  const sentinels = client.connector?.sentinelIterator?.sentinels;
  return duplicateRedis.call(client, {
    ...common,
    ...connection,
    ...(sentinels && { sentinels: [...sentinels] }),
    retryStrategy: retry,
    // A Sentinel may be silent, too: often it is on the host of a master that is silent.
    sentinelCommandTimeout: shorter(options?.sentinelCommandTimeout),
    // `select` at run time changes the database of the connection, not the options that are copied.
    db: database,
  });
}

/** The nodes that the client has learned, then the named ones, of which one may hang. */
function knownNodes(client: IoredisInternals): unknown[] {
  const learned = (client.nodes?.("all") ?? []).flatMap(({ options }) =>
    options?.host === undefined ? [] : { host: options.host, port: Number(options.port) },
  );
  return [...learned, ...(client.startupNodes ?? [])];
}
