import { Redis } from "ioredis";
import { after } from "next/server";
import { RedisStore, SubmitLock } from "submit-lock";
import { submitGuard } from "submit-lock/fetch";

// `next build` loads this module as well, where no Redis may be.
const redis = new Redis(process.env.REDIS_URL, { lazyConnect: true });
const lock = new SubmitLock({ store: new RedisStore(redis) });

let ended = 0;

/** How many leases have ended while Next.js waited for them. */
export const endedLeases = () => ended;

export const guard = submitGuard({
  lock,
  userId: ({ headers }) => headers.get("x-user-id"),
  idempotency: {},
  waitUntil: (promise) =>
    after(async () => {
      await promise;
      ended += 1;
    }),
});
