import process from "node:process";
import { Redis } from "ioredis";
import { RedisStore, SubmitLock } from "submit-lock";
import { leaseOf, submitGuard } from "submit-lock/fetch";

const { PAYMENTS_URL, REDIS_URL } = process.env;

const lock = new SubmitLock({ store: new RedisStore(new Redis(REDIS_URL)) });
await lock.check({ submissions: true });

const guard = submitGuard({
  lock,
  userId: ({ headers }) => headers.get("x-user-id"),
  idempotency: {},
});

/** These take a `Request` and return a `Response`, on any runtime and in any framework. */
export const placeOrder = guard.protect(async (request) => {
  const { signal } = leaseOf(request);
  const paid = await fetch(PAYMENTS_URL, { method: "POST", signal });
  return Response.json(await paid.json(), { status: 201 });
});

/** Reports on the order until the client has left. */
export const reportOrder = guard.protect(async () => {
  let timer;
  const report = new ReadableStream({
    start(controller) {
      const encoder = new TextEncoder();
      timer = setInterval(() => controller.enqueue(encoder.encode("at work\n")), 20);
    },
    cancel() {
      clearInterval(timer);
    },
  });
  return new Response(report, { status: 201 });
});
