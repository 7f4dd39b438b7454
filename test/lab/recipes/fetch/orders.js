import process from "node:process";
import { Redis } from "ioredis";
import { RedisStore, SubmitLock } from "submit-lock";
import { submitGuard } from "submit-lock/fetch";
import { other } from "./others.js";
import { pay, report } from "./work.js";

const lock = new SubmitLock({ store: new RedisStore(new Redis(process.env.REDIS_URL)) });
await lock.check({ submissions: true });
process.on("SIGTERM", async () => {
  await lock.close({ timeoutMs: 10_000 });
  setTimeout(() => process.exit(), 1_000);
});

const guard = submitGuard({
  lock,
  userId: ({ headers }) => headers.get("x-user-id"),
  idempotency: {},
});

/** These take a `Request` and return a `Response`, on any runtime and in any framework. */
export const placeOrder = guard.protect(pay);
export const reportOrder = guard.protect(report);
export const passOrder = guard.protect(other);
