import { Mutex } from "redis-semaphore";
import { type Client, type Locker, notTaken, ttlMs } from "../../../../bench/locker.ts";

export function openRedisSemaphore(client: Client): Locker<Mutex> {
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
