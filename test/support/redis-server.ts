import { inject, onTestFinished } from "vitest";
import { type RedisServer, type ServerOptions, startServer } from "./server-process.ts";

export type { RedisServer } from "./server-process.ts";

/** Starts a server of the test's own, on a free port unless one is given. */
export function startRedis(options: ServerOptions = {}): Promise<RedisServer> {
  return startServer(inject("redisServerBinary"), options);
}

/** The port of the server that all test files share. Use a fresh user and never flush it. */
export function sharedRedisPort(): number {
  return inject("sharedRedisPort");
}

/** What a test starts for itself: it is stopped when the test is over. */
export async function forTest<Started extends { stop(): Promise<void> }>(
  starting: Promise<Started>,
): Promise<Started> {
  const started = await starting;
  onTestFinished(() => started.stop());
  return started;
}
