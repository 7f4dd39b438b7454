import { setTimeout as sleep } from "node:timers/promises";
import { Mutex, type MutexOptions } from "redis-semaphore";
import type { AnyRedis } from "../../../support/clients.ts";
import { type Contender, type Library, ttlMs } from "../../faults/library.ts";

function contender(client: AnyRedis, options: MutexOptions): Contender {
  return {
    async acquire(user) {
      const lost = new AbortController();
      // The default throws inside a timer, which ends the process.
      const onLockLost = (error: Error): void => lost.abort(error);
      const mutex = new Mutex(client, user, { ...options, lockTimeout: ttlMs, onLockLost });
      if (!(await mutex.tryAcquire())) return { outcome: "contended" };
      const hold = {
        ownerId: mutex.identifier,
        // It extends by itself, at four fifths of the lock's life.
        signal: lost.signal,
        async release() {
          await mutex.release();
          return "released";
        },
      };
      return { outcome: "acquired", hold };
    },
    async warm(user) {
      const onLockLost = (): void => {};
      const mutex = new Mutex(client, user, {
        lockTimeout: ttlMs,
        refreshInterval: 10,
        onLockLost,
      });
      if (!(await mutex.tryAcquire())) return;
      await sleep(40);
      await mutex.release();
    },
    close: async () => {},
  };
}

const keyOf = (user: string): string => `mutex:${user}`;
const openRival = (client: AnyRedis): Contender => contender(client, { acquireAttemptsLimit: 1 });

export const redisSemaphore: Library[] = [
  { name: "redis-semaphore, one try", extends: true, keyOf, open: openRival },
  {
    name: "redis-semaphore, defaults",
    extends: true,
    keyOf,
    open: (client) => contender(client, {}),
    openRival,
  },
];
