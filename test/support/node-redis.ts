import {
  createClient,
  createCluster,
  type RedisClientOptions,
  type RedisClusterOptions,
  type RespVersions,
} from "redis";
import type { AnyCluster, AnyRedis, ClusterOptions, SharedOptions } from "./clients.ts";

/** Options that ioredis has no name for. */
export interface NodeRedisOptions extends Omit<RedisClientOptions, "socket" | "RESP"> {
  readonly RESP?: RespVersions;
}

/** Options of ioredis that a test gives, as node-redis has them. Those that only ioredis has are none. */
function translated(options: SharedOptions) {
  const { db, keyPrefix, connectionName, username, password, enableOfflineQueue, tls } = options;
  const reconnectStrategy =
    options.retryStrategy === null || options.retryStrategy === undefined
      ? undefined
      : (retries: number) => (options.retryStrategy as (times: number) => number)(retries + 1);
  const socket: NonNullable<RedisClientOptions["socket"]> = {
    host: "127.0.0.1",
    ...(reconnectStrategy && { reconnectStrategy }),
    ...(options.retryStrategy === null && { reconnectStrategy: false }),
    ...(options.connectTimeout !== undefined && { connectTimeout: options.connectTimeout }),
    ...(tls && { tls: true as const, ...(tls as object) }),
  };
  const common: RedisClientOptions = {
    ...(username !== undefined && { username }),
    ...(password !== undefined && { password }),
    ...(connectionName !== undefined && { name: connectionName }),
    ...(db !== undefined && { database: db }),
    ...(keyPrefix !== undefined && { keyPrefix: keyPrefix as string }),
    ...(enableOfflineQueue === false && { disableOfflineQueue: true }),
  };
  return { socket, common };
}

/**
 * Clients of node-redis, under the names and options by which the suites connect those of ioredis.
 * Only a store is given them whole: a test that calls a method of ioredis does not run on them.
 */
export function nodeRedis(
  port: number,
  options: SharedOptions = {},
  own: NodeRedisOptions = {},
): AnyRedis {
  const { socket, common } = translated(options);
  const client = createClient({ ...(common as object), ...own, socket: { ...socket, port } });
  client.on("error", () => {});
  if (options.lazyConnect !== true) void client.connect().catch(() => {});
  return client as unknown as AnyRedis;
}

export function nodeRedisCluster(
  ports: readonly number[],
  options: ClusterOptions = {},
  own: Partial<RedisClusterOptions> = {},
): AnyCluster {
  const { socket, common } = translated((options.redisOptions ?? {}) as SharedOptions);
  const { keyPrefix = options.keyPrefix, ...defaults } = common;
  const client = createCluster({
    rootNodes: ports.map((port) => ({ socket: { host: "127.0.0.1", port } })),
    ...own,
    defaults: { ...defaults, socket, ...own.defaults },
    ...(keyPrefix !== undefined && { keyPrefix: keyPrefix as string }),
  });
  client.on("error", () => {});
  void client.connect().catch(() => {});
  return client as unknown as AnyCluster;
}
