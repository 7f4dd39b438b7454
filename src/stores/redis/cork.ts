import { type RedisClient, streamsOf } from "./ioredis.ts";

/**
 * What `write` writes to each server leaves in one piece, at its end: a write to the socket costs
 * this process as much as the call that it carries. It decides when bytes leave and nothing else.
 */
export function corked(client: RedisClient, write: () => void): void {
  const streams = streamsOf(client);
  for (const stream of streams) stream.cork();
  try {
    write();
  } finally {
    for (const stream of streams) stream.uncork();
  }
}
