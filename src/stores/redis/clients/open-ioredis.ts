import type { IoredisClient } from "./ioredis.ts";

/** Where Redis is and who connects: the arguments of the command line's client. */
export interface RedisPlace {
  readonly host: string;
  readonly port: number;
  /** A Unix socket, instead of host and port. */
  readonly path?: string | undefined;
  /** The family of IP addresses: 4, 6 or, for both, 0. */
  readonly family?: number | undefined;
  readonly username: string;
  readonly password: string;
  readonly database: number;
  readonly tls?: { readonly ca?: string } | undefined;
  readonly isCluster: boolean;
  /** The Sentinels that name the master, instead of the host. */
  readonly sentinels?: readonly { readonly host: string; readonly port: number }[] | undefined;
  readonly masterName: string;
  readonly keyPrefix: string;
  readonly withinMs: number;
}

/**
 * Opens the command line's client. It tries only once, so that a command can say what failed.
 * In a file of its own: bundlers resolve even unused imports, and a shop may have node-redis alone.
 */
export async function openIoredis(place: RedisPlace): Promise<IoredisClient> {
  const { Cluster, Redis } = await import("ioredis");
  const { host, port, username, password, database, keyPrefix, masterName, withinMs } = place;
  const { family, path } = place;
  const once = {
    lazyConnect: true,
    enableOfflineQueue: false,
    connectTimeout: withinMs,
    maxRetriesPerRequest: 0,
    // The Redis user may have no permission for CLIENT SETINFO, or for the ready check's INFO.
    disableClientInfo: true,
    enableReadyCheck: false,
    retryStrategy: () => null,
  };
  const network = { ...(place.tls && { tls: place.tls }), ...(family !== undefined && { family }) };
  const login = { username, password, db: database, ...network };
  if (place.isCluster) {
    return new Cluster([{ host, port }], {
      ...once,
      clusterRetryStrategy: () => null,
      slotsRefreshTimeout: withinMs,
      keyPrefix,
      // By default ioredis connects to the nodes' IP addresses, which few certificates name.
      ...(place.tls && { dnsLookup: (name, found) => found(null, name) }),
      redisOptions: { ...login, ...once },
    });
  }
  const sentinels = place.sentinels && { sentinels: [...place.sentinels], name: masterName };
  // By default ioredis leaves TLS out with Sentinels, and the password would be readable.
  const tls = place.tls && { enableTLSForSentinelMode: true, sentinelTLS: place.tls };
  const at = sentinels ?? (path === undefined ? { host, port } : { path });
  return new Redis({
    ...login,
    ...tls,
    ...once,
    ...at,
    keyPrefix,
    sentinelRetryStrategy: () => null,
  });
}
