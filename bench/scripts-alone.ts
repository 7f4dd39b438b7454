import { randomUUID } from "node:crypto";
import { acquireScript } from "../src/stores/redis/scripts/acquire.ts";
import { releaseScript } from "../src/stores/redis/scripts/release.ts";
import { type Client, type Locker, notTaken, ttlMs } from "./locker.ts";

interface Hold {
  readonly key: string;
  readonly ownerId: string;
}

const acquireTimeoutMs = 1_000;
const maxHoldMs = 60_000;
/** What the key holds behind the owner id and the fencing token. */
const valueTail = `${ttlMs}:${maxHoldMs}:web-3%3A4711::`;

/** What submit-lock sends for one lock, and nothing around it: no library on these scripts is faster. */
export function openScriptsAlone(redis: Client): Locker<Hold> {
  return {
    async acquire(user) {
      const key = `lock:submit:${user}`;
      const ownerId = randomUUID();
      const deadlineMs = Date.now() + acquireTimeoutMs;
      const args = [deadlineMs, 2 * acquireTimeoutMs, maxHoldMs, ttlMs, 0, valueTail, ownerId];
      const reply = (await redis.eval(acquireScript, 1, key, ...args)) as number[];
      if (reply[2] !== -1) throw notTaken(user);
      return { key, ownerId };
    },
    release: ({ key, ownerId }) => redis.eval(releaseScript, 1, key, ownerId),
  };
}
