// Compile-only: `tsc -p test` is the test, and each `@ts-expect-error` fails it when the line compiles.
import type { Cluster, Redis } from "ioredis";
import type { Cluster as Cluster5, Redis as Redis5 } from "ioredis5";
import { createClient, createCluster, type RedisClientType, type RedisClusterType } from "redis";
import {
  type Attempt,
  isSubmitLockError,
  type Lease,
  type LockStore,
  MemoryStore,
  RedisStore,
  SubmitLock,
} from "submit-lock";

declare const clients: {
  redis6: Redis;
  redis5: Redis5;
  cluster6: Cluster;
  cluster5: Cluster5;
  resp3: Redis<"resp3">;
  nodeRedis: RedisClientType;
  nodeRedisCluster: RedisClusterType;
};

export const stores: LockStore[] = [
  new RedisStore(clients.redis6),
  new RedisStore(clients.redis5),
  new RedisStore(clients.cluster6),
  new RedisStore(clients.cluster5),
  new RedisStore(clients.resp3),
  new RedisStore(clients.nodeRedis),
  new RedisStore(clients.nodeRedisCluster),
  new RedisStore(createClient({ RESP: 2, database: 5 })),
  new RedisStore(await createClient({ RESP: 3 }).connect()),
  new RedisStore(createCluster({ rootNodes: [{ url: "redis://localhost" }] })),
  new MemoryStore(),
];

// A pipeline collects its commands instead of sending them.
// @ts-expect-error
new RedisStore(clients.redis6.pipeline());
// @ts-expect-error
new RedisStore(clients.redis5.multi());

// @ts-expect-error
new RedisStore(clients.nodeRedis.multi());
// @ts-expect-error
new RedisStore("redis://localhost");

// @ts-expect-error a bare client is no store
new SubmitLock({ store: clients.redis6 });
// @ts-expect-error the store is required
new SubmitLock({ ttlMs: 1_000 });
// @ts-expect-error an unknown option
new SubmitLock({ store: new MemoryStore(), ttl: 1_000 });

export const lock: SubmitLock = new SubmitLock({ store: new MemoryStore(), ttlMs: undefined });

/** An attempt narrows by its outcome, and every outcome has been seen to. */
export function narrowed(attempt: Attempt): string {
  // @ts-expect-error not before it is known to be acquired
  void attempt.lease;
  switch (attempt.outcome) {
    case "acquired":
      return `${attempt.lease.key} ${attempt.confirmed}`;
    case "contended":
      return attempt.expiresInMs.toFixed();
    case "unavailable":
      return attempt.cause.message;
  }
}

export async function used(): Promise<void> {
  await lock.acquire("42");
  await lock.acquire(42);
  await lock.acquire(42n);
  // @ts-expect-error
  await lock.acquire(undefined);
  // @ts-expect-error
  await lock.acquire({ id: 42 });

  const result: number = await lock.withLock("42", { waitMs: 500 }, (lease: Lease) => {
    const signal: AbortSignal = lease.signal;
    return signal.aborted ? 0 : lease.remainingMs();
  });
  const text: string = await lock.withLock("42", {}, async () => "an async result");
  // @ts-expect-error
  await lock.withLock("42", { wait: 500 }, () => result);
  const { value, replayed } = await lock.once("42", { id: "cart 7" }, () => ({ number: 7 }));
  const order: { number: number } = value;
  const nothing: undefined = (
    await lock.once("42", { id: "cart 8" }, async () => undefined, { waitMs: replayed ? 0 : 1 })
  ).value;
  // @ts-expect-error
  await lock.once("42", () => order);
  void nothing;
  await lock.check();
  await lock.close({ timeoutMs: 5_000 });
  void text;
}

/** The code tells the errors apart. */
export function told(error: unknown): number | string {
  if (!isSubmitLockError(error)) return "";
  switch (error.code) {
    case "SUBMIT_LOCK_CONTENDED":
      return error.hasEnded || error.isCooldown ? 0 : error.expiresInMs;
    case "SUBMIT_LOCK_LOST":
      return error.reason;
    default:
      return error.message;
  }
}
