import type { EventEmitter } from "node:events";
import {
  Cluster,
  type ClusterOptions as ClusterOptions6,
  type RedisOptions as Options,
  Redis,
} from "ioredis";
import {
  Cluster as Cluster5,
  type ClusterOptions as ClusterOptions5,
  Redis as Redis5,
  type RedisOptions as RedisOptions5,
} from "ioredis5";
import { portOf } from "../../src/stores/redis/clients/port-of.ts";
import { nodeRedis, nodeRedisCluster } from "./node-redis.ts";
import { until } from "./until.ts";

export type AnyRedis = Redis | Redis5;
export type AnyCluster = Cluster | Cluster5;
export type AnyClient = AnyRedis | AnyCluster;

// `replyMapping` changes the client's type, and no test needs it.
export type RedisOptions = Omit<Options, "replyMapping">;
export type ClusterOptions = Omit<ClusterOptions6, "redisOptions"> & {
  redisOptions?: Omit<NonNullable<ClusterOptions6["redisOptions"]>, "replyMapping">;
};

/** Options that both majors understand in the same way. */
export type SharedOptions = RedisOptions & RedisOptions5;

const opened = new Set<AnyClient>();

function keep<C extends AnyClient>(client: C): C {
  opened.add(client);
  // Tests look at outcomes. Without a listener ioredis prints every refused connection.
  (client as EventEmitter).on("error", () => {});
  return client;
}

function kept<C extends AnyClient>(client: C): C {
  opened.add(client);
  return client;
}

function nodes(ports: readonly number[]): { host: string; port: number }[] {
  return ports.map((port) => ({ host: "127.0.0.1", port }));
}

export const ioredis6 = {
  name: "ioredis 6",
  connect: (port: number, options: RedisOptions = {}): Redis =>
    keep(new Redis(port, "127.0.0.1", options)),
};

export const ioredis5 = {
  name: "ioredis 5",
  connect: (port: number, options: RedisOptions5 = {}): Redis5 =>
    keep(new Redis5(port, "127.0.0.1", options)),
};

export const cluster6 = {
  name: "ioredis 6 Cluster",
  connect: (ports: readonly number[], options: ClusterOptions = {}): Cluster =>
    keep(new Cluster(nodes(ports), options)),
};

export const cluster5 = {
  name: "ioredis 5 Cluster",
  connect: (ports: readonly number[], options: ClusterOptions5 = {}): Cluster5 =>
    keep(new Cluster5(nodes(ports), options)),
};

export const nodeRedis6 = {
  name: "node-redis 6",
  connect: (port: number, options: SharedOptions = {}): AnyRedis => kept(nodeRedis(port, options)),
  rights: ["+client|info"],
};

export const nodeRedisCluster6 = {
  name: "node-redis 6 Cluster",
  connect: (ports: readonly number[], options: ClusterOptions = {}): AnyCluster =>
    kept(nodeRedisCluster(ports, options)),
};

/** For a suite on what only ioredis does, or that looks at its methods. */
export const ioredisClients: {
  name: string;
  connect(port: number, options?: SharedOptions): AnyRedis;
}[] = [ioredis6, ioredis5];

/** As `ioredisClients`. */
export const ioredisClusters: {
  name: string;
  connect(ports: readonly number[], options?: ClusterOptions & ClusterOptions5): AnyCluster;
}[] = [cluster6, cluster5];

/** A client of a single server, for `describe.each`. */
export interface RedisKind {
  readonly name: string;
  connect(port: number, options?: SharedOptions): AnyRedis;
  /** The permissions that it needs besides the commands of a lock. */
  readonly rights?: readonly string[];
}

/** A client of a Cluster, for `describe.each`. */
export interface ClusterKind {
  readonly name: string;
  connect(ports: readonly number[], options?: ClusterOptions & ClusterOptions5): AnyCluster;
}

/** For the contracts and the laboratories. */
export const everyRedisClient: readonly RedisKind[] = [...ioredisClients, nodeRedis6];
export const everyClusterClient: readonly ClusterKind[] = [...ioredisClusters, nodeRedisCluster6];

/** For the rules. ioredis 5 differs from 6 in nothing that they rest on: the workflow runs all. */
const ofRules = <Kind extends { readonly name: string }>(all: readonly Kind[]): readonly Kind[] =>
  process.env["TEST_CLIENTS"] === "all"
    ? all
    : all.filter(({ name }) => !name.startsWith("ioredis 5"));
export const redisClients: readonly RedisKind[] = ofRules(everyRedisClient);
export const clusterClients: readonly ClusterKind[] = ofRules(everyClusterClient);

/**
 * Resolves when the client can be used. A handshake that a busy machine made too slow for the
 * client's own time bound is made again, and no reason to give up.
 */
export async function untilReady<C extends AnyClient>(client: C): Promise<C> {
  await until(() => statusOf(client) === "ready", {
    what: "the client to be ready",
    boundMs: 60_000,
  });
  return client;
}

/** Whether a kind of client is of node-redis, by its name. */
export function isNodeRedis(name: string): boolean {
  return name.startsWith("node-redis");
}

/** The state of a client of any library, in the words of ioredis. */
export function statusOf(client: AnyClient): string {
  return portOf(client).status;
}

export function closeClient(client: AnyClient): void {
  if ("destroy" in client) (client as { destroy(): void }).destroy();
  else client.disconnect();
}

/** Closes every client that `connect` opened. Meant for `afterEach`. */
export function closeClients(): void {
  for (const client of opened) closeClient(client);
  opened.clear();
}
