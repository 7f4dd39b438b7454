import { InvalidOptionError } from "../../../errors.ts";
import { describe, hasMembers } from "../../../validation.ts";
import { type IoredisClient, IoredisPort, isIoredis } from "./ioredis.ts";
import type { ClientPort } from "./port.ts";

/** A client of Redis, of one of the two libraries that the store knows. */
export type RedisClient = IoredisClient;

const ports = new WeakMap<object, ClientPort>();

/**
 * The one port of a client, by its shape.
 *
 * @throws InvalidOptionError for any other value, with the reason and the way out.
 */
export function portOf(client: RedisClient): ClientPort {
  if (!isIoredis(client)) {
    throw new InvalidOptionError(
      `redis: expected an ioredis client (Redis or Cluster of ioredis 5 or 6), got ${whatElse(client)}`,
    );
  }
  const known = ports.get(client);
  if (known !== undefined) return known;
  const port = new IoredisPort(client);
  ports.set(client, port);
  return port;
}

function whatElse(client: unknown): string {
  if (hasMembers(client, ["duplicate", "sendCommand"])) {
    return "a node-redis client: pass one of ioredis instead, such as new Redis(url)";
  }
  // ioredis-mock has `connected` where ioredis has `status`; so has node-redis 3, found above.
  if (hasMembers(client, ["duplicate", "connected"])) {
    return "ioredis-mock, which does not run the scripts of a lock: use new MemoryStore() in tests";
  }
  return describe(client);
}
