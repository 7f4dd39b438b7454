// Waits for a Redis that comes up later, up to 30 s: `npm run build`, then `npx tsx examples/boot.ts`.
// A process that begins to listen at once answers 503 until Redis is there. With node-redis, put the
// client of docs/operations/redis.md in the place of this one, and `destroy()` at the end.
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import { isSubmitLockError, RedisStore, SubmitLock } from "submit-lock";

const redis = new Redis(process.env["REDIS_URL"] ?? "redis://127.0.0.1:6379", {
  connectTimeout: 1_000, // default 10 s
  socketTimeout: 5_000, // notices a host that vanished
  retryStrategy: (times) => Math.min(50 * times, 500), // default: up to 5 s
});
redis.on("error", (error) => console.error("redis:", error.message));
const lock = new SubmitLock({ store: new RedisStore(redis) });

const end = performance.now() + 30_000;
for (;;) {
  const error = await lock.check().catch((reason: unknown) => reason);
  if (error === undefined) break;
  // A missing permission stays missing.
  const mayCome = isSubmitLockError(error) && error.code === "SUBMIT_LOCK_UNAVAILABLE";
  if (!mayCome || performance.now() > end) throw error;
  await sleep(250);
}
console.log("ready");

// Here a server begins to listen. This example ends.
await lock.close();
redis.disconnect();
