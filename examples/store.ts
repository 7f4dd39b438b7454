import { Redis } from "ioredis";
import { createClient } from "redis";
import { type LockStore, MemoryStore, RedisStore } from "submit-lock";

/** Where the locks are kept, and how to leave. */
export interface OpenStore {
  readonly store: LockStore;
  /** For the terminal. */
  readonly place: string;
  /** When the locks are closed. */
  end(): void;
}

/** How long Redis may take to be ready. */
const readyWithinMs = 5_000;

/**
 * Redis if `REDIS_URL` is set, through ioredis or with `REDIS_CLIENT=node-redis` through that, else
 * the memory of this process. Never a silent fallback: whoever
 * sets `REDIS_URL` wants to see Redis at work.
 */
export async function openStore(url: string | undefined): Promise<OpenStore> {
  if (url === undefined || url === "") {
    const place = "in the memory of this process (set REDIS_URL to keep them in Redis)";
    return { store: new MemoryStore(), place, end: () => {} };
  }
  const isNodeRedis = process.env["REDIS_CLIENT"] === "node-redis";
  const { redis, end } = isNodeRedis ? nodeRedisAt(url) : ioredisAt(url);
  let reason: Error | undefined;
  redis.on("error", (error: Error) => {
    reason = error;
  });
  try {
    await within(readyWithinMs, redis.connect());
  } catch (error) {
    end();
    throw new Error(
      `Redis at ${withoutPassword(url)} cannot be used: ${describe(reason ?? error)}`,
    );
  }
  return {
    store: new RedisStore(redis),
    place: `in Redis at ${withoutPassword(url)}`,
    // A QUIT would wait for a server that is silent, and the locks have waited already.
    end,
  };
}

function ioredisAt(url: string) {
  const redis = new Redis(url, {
    lazyConnect: true,
    connectTimeout: 1_000,
    // Soon back after an outage.
    retryStrategy: (times) => Math.min(50 * times, 500),
  });
  return { redis, end: () => redis.disconnect() };
}

function nodeRedisAt(url: string) {
  const redis = createClient({
    url,
    socket: {
      connectTimeout: 1_000,
      // Soon back after an outage.
      reconnectStrategy: (retries) => Math.min(50 * (retries + 1), 500),
    },
  });
  return { redis, end: () => redis.destroy() };
}

/** Rejects when the time is up: a server that accepts connections and stays silent is no Redis. */
async function within(ms: number, promise: Promise<unknown>): Promise<void> {
  const { promise: timeUp, cancel } = rejectAfter(ms);
  await Promise.race([promise, timeUp]).finally(cancel);
}

function rejectAfter(ms: number): { promise: Promise<never>; cancel: () => void } {
  let timer: NodeJS.Timeout | undefined;
  const promise = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error(`it was not ready within ${ms} ms`)), ms);
  });
  return { promise, cancel: () => clearTimeout(timer) };
}

function withoutPassword(url: string): string {
  return url.replace(/\/\/[^@/]*@/, "//");
}

function describe(error: unknown): string {
  // A host with several addresses gives an AggregateError, whose message is empty.
  if (error instanceof AggregateError) return error.errors.map(describe).join(", ");
  return error instanceof Error ? error.message : String(error);
}
