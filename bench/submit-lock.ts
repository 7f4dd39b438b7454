import { type Lease, RedisStore, type RedisStoreOptions, SubmitLock } from "submit-lock";
import { type Client, type Locker, notTaken, ttlMs } from "./locker.ts";

export function openSubmitLock(client: Client, options: RedisStoreOptions = {}): Locker<Lease> {
  const lock = new SubmitLock({ store: new RedisStore(client, options), ttlMs });
  return {
    async acquire(user) {
      const attempt = await lock.acquire(user);
      if (attempt.outcome !== "acquired") throw notTaken(user);
      return attempt.lease;
    },
    release: (lease) => lease.release(),
  };
}
