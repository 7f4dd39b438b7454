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
  quit(): Promise<unknown>;
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

/** A client as an application makes it. @param commandTimeout of ioredis */
export function connect(target: Target, client: ClientName, commandTimeout?: number): Connected {
  if (client === "node-redis 6") return connectNodeRedis(target);
  const redis = connectIoredis(target, client, commandTimeout);
  (redis as EventEmitter).on("error", () => {});
  return { redis, quit: () => redis.quit() };
}

function connectIoredis(target: Target, client: ClientName, commandTimeout: number | undefined) {
  const isNew = client === "ioredis 6";
  switch (target.kind) {
    case "single": {
      const bound = commandTimeout === undefined ? {} : { commandTimeout };
      const options = { ...at(target.port), ...recommended, ...bound };
      return isNew ? new Redis(options) : new Redis5(options);
    }
    case "sentinel": {
      const options = {
        ...recommended,
        name: target.name,
        sentinels: target.ports.map(at),
        sentinelRetryStrategy: retryStrategy,
      };
      return isNew ? new Redis(options) : new Redis5(options);
    }
    case "cluster": {
      const { retryStrategy: clusterRetryStrategy, ...redisOptions } = recommended;
      const options = { redisOptions, clusterRetryStrategy };
      const nodes = target.ports.map(at);
      return isNew ? new Cluster(nodes, options) : new Cluster5(nodes, options);
    }
  }
}

function connectNodeRedis(target: Target): Connected {
  const { socket, ...options } = recommendedNodeRedis;
  switch (target.kind) {
    case "sentinel":
      throw new Error("The Sentinel client of node-redis is refused.");
    case "single": {
      const redis = createClient({ ...options, socket: { ...socket, ...at(target.port) } });
      redis.on("error", () => {});
      void redis.connect().catch(() => {});
      return { redis, quit: () => redis.close() };
    }
    case "cluster": {
      const redis = createCluster({
        rootNodes: target.ports.map((port) => ({ socket: at(port) })),
        defaults: { ...options, socket },
      });
      redis.on("error", () => {});
      void redis.connect().catch(() => {});
      return { redis, quit: () => redis.close() };
    }
  }
}
