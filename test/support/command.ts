import { Redis } from "ioredis";

/** Sends one command on a connection of its own, as an observer who is not part of the test. */
export async function command(
  port: number,
  name: string,
  ...args: (string | number)[]
): Promise<unknown> {
  const redis = new Redis(port, "127.0.0.1", {
    lazyConnect: true,
    enableReadyCheck: false,
    retryStrategy: null,
    commandTimeout: 10_000,
    disableClientInfo: true,
  });
  redis.on("error", () => {});
  try {
    await redis.connect();
    return await redis.call(name, ...args);
  } finally {
    redis.disconnect();
  }
}
