import type { NodeRedisClient } from "./node-redis.ts";
import type { RedisPlace } from "./open-ioredis.ts";

/** Opens the command line's client. In a file of its own: bundlers resolve even unused imports. */
export async function openNodeRedis(place: RedisPlace): Promise<NodeRedisClient> {
  const { createClient, createCluster } = await import("redis");
  const { database, family, host, isCluster, keyPrefix, path, port, tls } = place;
  const socket = {
    ...(path === undefined ? { host, port } : { path }),
    ...(family !== undefined && { family }),
    ...{ connectTimeout: place.withinMs, reconnectStrategy: false as const },
    ...(tls && { tls: true as const, ...tls }),
  };
  const login = {
    ...(place.username !== "" && { username: place.username }),
    ...(place.password !== "" && { password: place.password }),
    // Otherwise node-redis sends CLIENT commands, for which the Redis user may lack permission.
    ...{ disableClientInfo: true, maintNotifications: "disabled" as const },
  };
  const client = isCluster
    ? createCluster({
        rootNodes: [{ socket: { host, port } }],
        defaults: { ...login, socket },
        keyPrefix,
        // Otherwise one master that is away would keep the command line from all others.
        minimizeConnections: true,
      })
    : createClient({ ...login, socket, database, keyPrefix });
  // A failure is an `error` event, which node-redis throws where there is no listener.
  client.on("error", () => {});
  void client.connect().catch(() => {});
  return client as unknown as NodeRedisClient;
}
