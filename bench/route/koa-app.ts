import type { RequestListener } from "node:http";
import type { Redis } from "ioredis";
import Koa, { type Middleware } from "koa";
import { RedisStore, SubmitLock } from "submit-lock";
import { type SubmitGuardOptions, submitGuard } from "submit-lock/koa";
import { ttlMs } from "../locker.ts";
import { koaLock, koaScripts } from "./hand-written.ts";
import type { Variant } from "./variants.ts";

export function koaApp(variant: Variant, redis: Redis): RequestListener {
  const app = new Koa();
  const inFront = middleware(variant, redis);
  if (inFront !== undefined) app.use(inFront);
  app.use(async (ctx) => {
    ctx.status = 201;
    ctx.body = { placed: true };
  });
  return app.callback() as RequestListener;
}

function middleware(variant: Variant, redis: Redis): Middleware | undefined {
  const guard = (once: Pick<SubmitGuardOptions, "idempotency"> = {}) => {
    const lock = new SubmitLock({ store: new RedisStore(redis), ttlMs });
    return submitGuard({ lock, userId: (ctx) => ctx.get("x-user-id"), ...once });
  };
  switch (variant) {
    case "bare":
      return undefined;
    case "ping":
      return async (_ctx, next) => {
        await redis.ping();
        await next();
      };
    case "hand-written":
      return koaLock(redis);
    case "scripts":
      return koaScripts(redis);
    case "guard":
      return guard();
    case "once":
      return guard({ idempotency: {} });
    case "protect":
    case "measured":
    case "traced":
      throw new Error(`${variant} is measured on Express alone`);
  }
}
