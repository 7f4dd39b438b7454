import { InvalidOptionError } from "../../../errors.ts";
import { describe, hasMembers } from "../../../validation.ts";
import { type IoredisClient, IoredisPort, isIoredis } from "./ioredis.ts";
import { type NodeRedisClient, NodeRedisPort } from "./node-redis.ts";
import { NodeRedisClusterPort } from "./node-redis-cluster.ts";
import type { ClientPort } from "./port.ts";

/** A client of ioredis from 5.3 on or 6, or of node-redis from 6.2 on (no Sentinel client, no pool). */
export type RedisClient = IoredisClient | NodeRedisClient;

const ports = new WeakMap<object, ClientPort>();

/** Returns the one port of a client. @throws InvalidOptionError with the reason and the way out. */
export function portOf(client: RedisClient): ClientPort {
  // The clients that node-redis derives, as by `withCommandOptions()`, share one connection.
  const { _self: identity = client } = Object(client) as { readonly _self?: object };
  const port = ports.get(identity) ?? open(client);
  ports.set(identity, port);
  return port;
}

function open(client: RedisClient): ClientPort {
  if (isIoredis(client)) return new IoredisPort(client);
  if (hasMembers(client, ["sendCommand", "duplicate", "destroy", "isReady", "on"])) {
    // `hImportSet` came with 6.2, as did `isReady` of a Cluster.
    if (hasMembers(client, ["nodeClient", "slots"])) return new NodeRedisClusterPort(client);
    const isSingle = hasMembers(client, ["hImportSet"]) && !hasMembers(client, ["getMasterNode"]);
    if (isSingle) return new NodeRedisPort(client);
  }
  const isUrl = typeof client === "string" || hasMembers(client, ["href", "password"]);
  const other = others.find(([members]) => hasMembers(client, members))?.[1] ?? describe(client);
  // The message has no text of a URL, which may have a password.
  const came = isUrl ? "a URL: write new RedisStore(new Redis(url))" : other;
  throw new InvalidOptionError(
    `redis: expected a client of ioredis (5 or 6) or of node-redis (6.2 or later), for one server or a Cluster, got ${came}`,
  );
}

/** The members of each other client, and why it is refused. The first that matches counts. */
const others: readonly (readonly [members: readonly string[], what: string])[] = [
  [
    ["sendCommand", "getMasterNode"],
    "node-redis' Sentinel client, which sends a command again whose reply was lost: use ioredis with Sentinels",
  ],
  [
    ["sendCommand", "execute", "idleClients"],
    "a pool of node-redis, whose connections cannot be watched: pass a client of createClient() or createCluster()",
  ],
  [
    ["sendCommand", "withTypeMapping"],
    "node-redis 5, 6.0 or 6.1. After a lost connection, version 5 may give a command the reply of another: npm install redis@6",
  ],
  [
    ["sendCommand", "duplicate"],
    "node-redis 4 or older, which may never settle the commands of a Cluster: npm install redis@6",
  ],
  [
    ["customCommand", "close"],
    "a client of Valkey GLIDE, which does not report a lost connection: use ioredis or redis@6 with Valkey",
  ],
  [
    ["duplicate", "connected", "send"],
    "Bun's client, which does not report a lost connection: use ioredis or redis@6 on Bun",
  ],
  // ioredis-mock has `connected` where ioredis has `status`.
  [
    ["duplicate", "connected"],
    "ioredis-mock, which does not run the scripts of a lock: use new MemoryStore() in tests",
  ],
];
