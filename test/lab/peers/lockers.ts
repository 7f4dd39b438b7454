import type { VerrouLock } from "@verrou/core";
import type { Mutex } from "redis-semaphore";
import type { Lock } from "redlock";
import type { Handle, UniversalLock } from "redlock-universal";
import { type Client, type Locker, notTaken, ttlMs } from "../../../bench/locker.ts";

// The neighbours in the bench. Each loads its own package only, in the process that measures it.

export async function openRedlock(client: Client): Promise<Locker<Lock>> {
  const { default: Redlock } = await import("redlock");
  const redlock = new Redlock([client], { retryCount: 0 });
  // Without a listener an error of a background try ends the process.
  redlock.on("error", () => {});
  return {
    acquire: (user) => redlock.acquire([`lock:submit:${user}`], ttlMs),
    release: (lock) => lock.release(),
  };
}

export async function openRedisSemaphore(client: Client): Promise<Locker<Mutex>> {
  const { Mutex } = await import("redis-semaphore");
  const options = { lockTimeout: ttlMs, acquireAttemptsLimit: 1, onLockLost: () => {} };
  return {
    async acquire(user) {
      // The key becomes mutex:submit:<user>, one character longer than lock:submit:<user>.
      const mutex = new Mutex(client, `submit:${user}`, options);
      if (!(await mutex.tryAcquire())) throw notTaken(user);
      return mutex;
    },
    release: (mutex) => mutex.release(),
  };
}

export async function openVerrou(client: Client): Promise<Locker<VerrouLock>> {
  const { LockFactory } = await import("@verrou/core");
  const { redisStore } = await import("@verrou/core/drivers/redis");
  const factory = new LockFactory(redisStore({ connection: client }).factory());
  return {
    async acquire(user) {
      const lock = factory.createLock(`lock:submit:${user}`, ttlMs);
      if (!(await lock.acquireImmediately())) throw notTaken(user);
      return lock;
    },
    release: (lock) => lock.release(),
  };
}

interface UniversalHold {
  readonly lock: UniversalLock;
  readonly handle: Handle;
}

export async function openRedlockUniversal(client: Client): Promise<Locker<UniversalHold>> {
  const { createLock, IoredisAdapter } = await import("redlock-universal");
  const adapter = new IoredisAdapter(client);
  return {
    async acquire(user) {
      const key = `lock:submit:${user}`;
      const lock = createLock({ adapter, key, ttl: ttlMs, retryAttempts: 0 });
      return { lock, handle: await lock.acquire() };
    },
    release: ({ lock, handle }) => lock.release(handle),
  };
}
