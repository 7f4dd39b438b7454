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

const models = new Map<RespVersions | undefined, ReturnType<typeof createClient>>();

/**
 * As `createClient`, which makes a class of 900 methods for options unlike those of the last
 * call: that blocks the process for a tenth of a second, and a duplicate has the class of its model.
 */
function clientOf(options: Omit<RedisClientOptions, "RESP"> & NodeRedisOptions) {
  const { RESP } = options;
  const model = models.get(RESP) ?? createClient({ RESP } as RedisClientOptions);
  models.set(RESP, model);
  return Object.create(model.duplicate(options as object)) as typeof model;
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
  const client = clientOf({ ...common, ...own, socket: { ...socket, port } } as object);
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
