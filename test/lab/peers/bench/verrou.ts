import { LockFactory, type VerrouLock } from "@verrou/core";
import { redisStore } from "@verrou/core/drivers/redis";
import { type Client, type Locker, notTaken, ttlMs } from "../../../../bench/locker.ts";

export function openVerrou(client: Client): Locker<VerrouLock> {
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
