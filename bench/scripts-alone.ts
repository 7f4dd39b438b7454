import { randomUUID } from "node:crypto";
import { acquireScript, releaseScript } from "../src/stores/redis/scripts.ts";
import { type Client, type Locker, notTaken, ttlMs } from "./locker.ts";

interface Hold {
  readonly key: string;
  readonly ownerId: string;
}

const acquireTimeoutMs = 1_000;
const maxHoldMs = 60_000;

/** What submit-lock sends for one lock, and nothing around it: no library on these scripts is faster. */
export function openScriptsAlone(redis: Client): Locker<Hold> {
  return {
    async acquire(user) {
      const key = `lock:submit:${user}`;
      const ownerId = randomUUID();
      const deadlineMs = Date.now() + acquireTimeoutMs;
      const args = [deadlineMs, 2 * acquireTimeoutMs, maxHoldMs, ttlMs, ownerId];
      const reply = (await redis.eval(acquireScript, 1, key, ...args)) as number[];
      if (reply[1] !== -1) throw notTaken(user);
      return { key, ownerId };
    },
    release: ({ key, ownerId }) => redis.eval(releaseScript, 1, key, ownerId),
  };
}
