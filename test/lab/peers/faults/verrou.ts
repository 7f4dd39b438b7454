import { LockFactory, type VerrouLock } from "@verrou/core";
import { redisStore } from "@verrou/core/drivers/redis";
import type { AnyRedis } from "../../../support/clients.ts";
import { type Contender, type Library, ttlMs } from "../../faults/library.ts";

function contender(client: AnyRedis, acquire: (lock: VerrouLock) => Promise<boolean>): Contender {
  const factory = new LockFactory(redisStore({ connection: client }).factory());
  return {
    async acquire(user) {
      const lock = factory.createLock(keyOf(user), ttlMs);
      if (!(await acquire(lock))) return { outcome: "contended" };
      const hold = {
        ownerId: lock.getOwner(),
        extend: () => lock.extend(ttlMs),
        async release() {
          await lock.release();
          return "released";
        },
      };
      return { outcome: "acquired", hold };
    },
    close: async () => {},
  };
}

const keyOf = (user: string): string => `lock:${user}`;
const openRival = (client: AnyRedis): Contender =>
  contender(client, (lock) => lock.acquireImmediately());

export const verrou: Library[] = [
  { name: "@verrou/core, one try", extends: true, keyOf, open: openRival },
  {
    name: "@verrou/core, defaults",
    extends: true,
    keyOf,
    open: (client) => contender(client, (lock) => lock.acquire()),
    openRival,
  },
];
