// The same shop on Koa: what `createApp` returns is what `request` of supertest takes.
import { bodyParser } from "@koa/bodyparser";
import Koa from "koa";
import type { SubmitLock } from "submit-lock";
import { submitGuard } from "submit-lock/koa";

/** What the payment provider's refusal is in your shop. */
export class DeclinedError extends Error {}

export function createApp(
  lock: SubmitLock,
  charge: (signal?: AbortSignal) => Promise<void>,
  { retainMs }: { retainMs: number },
): ReturnType<Koa["callback"]> {
  const guard = submitGuard({
    lock,
    userId: (ctx) => ctx.get("x-user-id"),
    idempotency: { retainMs },
  });
  let orders = 0;
  const app = new Koa().use(bodyParser()).use(guard);
  app.silent = true; // a lost lease is a 503, and no line in the test's log
  app.use(async (ctx) => {
    try {
      await charge(ctx.state.submitLease?.signal);
      ctx.status = 201;
      ctx.body = { order: ++orders };
    } catch (error) {
      if (!(error instanceof DeclinedError)) throw error;
      ctx.status = 402;
      ctx.body = { message: "Your card was declined." };
    }
  });
  return app.callback();
}
