import type { EventEmitter } from "node:events";
import { Cluster, Redis } from "ioredis";
import { Cluster as Cluster5, Redis as Redis5 } from "ioredis5";
import { createClient, createCluster } from "redis";
import type { RedisClient } from "../../../src/index.ts";
import type { ClientName } from "../laboratory.ts";
import type { Target } from "./protocol.ts";

/** A client of Redis, and how the application leaves. */
interface Connected {
  readonly redis: RedisClient;
  end(): void;
}

/** What the documentation recommends. */
const retryStrategy = (times: number) => Math.min(50 * times, 500);
const recommended = {
  connectTimeout: 1_000,
  socketTimeout: 5_000,
  retryStrategy,
  reconnectOnError: (error: Error) => error.message.includes("READONLY"),
};

/** With a ping, because `socketTimeout` of node-redis also counts while nothing is asked. */
const recommendedNodeRedis = {
  pingInterval: 1_000,
  socket: {
    connectTimeout: 1_000,
    socketTimeout: 5_000,
    reconnectStrategy: (retries: number) => retryStrategy(retries + 1),
  },
};

const at = (port: number) => ({ host: "127.0.0.1", port });

/** A client as an application makes it. */
export function connect(target: Target, client: ClientName): Connected {
  if (client === "node-redis 6") return connectNodeRedis(target);
  const redis = connectIoredis(target, client);
  (redis as EventEmitter).on("error", () => {});
  return { redis, end: () => redis.disconnect() };
}

function connectIoredis(target: Target, client: ClientName) {
  const isNew = client === "ioredis 6";
  if (target.kind === "cluster") {
    const { retryStrategy: clusterRetryStrategy, ...redisOptions } = recommended;
    const options = { redisOptions, clusterRetryStrategy };
    const nodes = target.ports.map(at);
    return isNew ? new Cluster(nodes, options) : new Cluster5(nodes, options);
  }
  const where =
    target.kind === "single"
      ? at(target.port)
      : {
          name: target.name,
          sentinels: target.ports.map(at),
          sentinelRetryStrategy: retryStrategy,
        };
  const options = { ...recommended, ...where };
  return isNew ? new Redis(options) : new Redis5(options);
}

function connectNodeRedis(target: Target): Connected {
  if (target.kind === "sentinel") throw new Error("The Sentinel client of node-redis is refused.");
  const { socket, ...options } = recommendedNodeRedis;
  const redis =
    target.kind === "single"
      ? createClient({ ...options, socket: { ...socket, ...at(target.port) } })
      : createCluster({
          rootNodes: target.ports.map((port) => ({ socket: at(port) })),
          defaults: { ...options, socket },
        });
  (redis as EventEmitter).on("error", () => {});
  void redis.connect().catch(() => {});
  return { redis: redis as RedisClient, end: () => redis.destroy() };
}
