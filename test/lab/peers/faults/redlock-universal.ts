import { createLock, IoredisAdapter } from "redlock-universal";
import type { AnyRedis } from "../../../support/clients.ts";
import { type Contender, type Library, ttlMs } from "../../faults/library.ts";

function contender(client: AnyRedis, options: { retryAttempts?: number }): Contender {
  const adapter = new IoredisAdapter(client);
  return {
    async acquire(user) {
      const lock = createLock({ ...options, adapter, key: keyOf(user), ttl: ttlMs });
      try {
        const handle = await lock.acquire();
        const hold = {
          ownerId: handle.value,
          async extend() {
            if (!(await lock.extend(handle, ttlMs))) throw new Error("not extended");
          },
          release: async () => ((await lock.release(handle)) ? "released" : "gone"),
        };
        return { outcome: "acquired", hold };
      } catch (error) {
        return { outcome: isContended(error) ? "contended" : "error" };
      }
    },
    close: async () => {},
  };
}

/** One error covers both an outage and a rival; its cause tells which. */
function isContended(error: unknown): boolean {
  return error instanceof Error && /held|locked|exists/i.test(String(error.cause));
}

const keyOf = (user: string): string => `lock:${user}`;
const openRival = (client: AnyRedis): Contender => contender(client, { retryAttempts: 0 });

export const redlockUniversal: Library[] = [
  { name: "redlock-universal, one try", extends: true, keyOf, open: openRival },
  {
    name: "redlock-universal, defaults",
    extends: true,
    keyOf,
    open: (client) => contender(client, {}),
    openRival,
  },
];
