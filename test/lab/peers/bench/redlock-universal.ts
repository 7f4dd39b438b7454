import { createLock, type Handle, IoredisAdapter, type UniversalLock } from "redlock-universal";
import { type Client, type Locker, ttlMs } from "../../../../bench/locker.ts";

interface Hold {
  readonly lock: UniversalLock;
  readonly handle: Handle;
}

export function openRedlockUniversal(client: Client): Locker<Hold> {
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
