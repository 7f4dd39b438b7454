import type { RequestListener } from "node:http";
import type Koa from "koa";
import type { Context, Middleware } from "koa";
import type { Lease } from "../../src/index.ts";
import { submitGuard } from "../../src/koa/index.ts";
import { type AppParts, type Turn, userOf } from "./turn.ts";

/** An application with the order handler at /orders, and an error handler around everything. */
export function koaListener(lib: typeof Koa, parts: AppParts): RequestListener {
  const app = new lib();
  app.silent = true;
  // Signs the cookie of a session.
  app.keys = ["a key for tests"];
  app.use(errorHandler(parts));
  app.use(readBody);
  for (const layer of parts.outside ?? []) app.use(layer.koa());
  if (parts.lock !== undefined) app.use(guardOf(parts));
  for (const layer of parts.inside ?? []) app.use(layer.koa());
  // Not async, so that a handler that throws at once really does.
  app.use((ctx, next) => {
    return ctx.path === "/orders" ? (parts.handler(turnOf(ctx)) as Promise<unknown>) : next();
  });
  return app.callback() as RequestListener;
}

function guardOf(parts: AppParts): Middleware {
  const { skip, userId = userOf, ...words } = parts.guard ?? {};
  return submitGuard({
    ...words,
    lock: parts.lock as NonNullable<AppParts["lock"]>,
    userId: (ctx) => userId(ctx.req) as string,
    skip: skip && ((ctx) => skip(ctx.req)),
  });
}

/** What a body parser does: afterwards `req.destroyed` is true on a healthy connection. */
const readBody: Middleware = async (ctx, next) => {
  for await (const _chunk of ctx.req) {
    // Only read.
  }
  await next();
};

function turnOf(ctx: Context): Turn {
  return {
    req: ctx.req,
    res: ctx.res,
    get lease(): Lease | undefined {
      return ctx.state["submitLease"];
    },
    answer(status, body, type) {
      ctx.status = status;
      if (type !== undefined) ctx.type = type;
      if (body !== null) ctx.body = body;
    },
    stream(source) {
      ctx.body = source;
      return undefined;
    },
    byHand() {
      ctx.respond = false;
      return ctx.res;
    },
    fail(error) {
      throw error;
    },
  };
}

function errorHandler(parts: AppParts): Middleware {
  return async (ctx, next) => {
    try {
      await next();
    } catch (error) {
      parts.onError?.(error);
      if (ctx.headerSent || ctx.respond === false) throw error;
      await parts.beforeErrorAnswer?.();
      ctx.status = (error as { status?: number } | null | undefined)?.status ?? 500;
      ctx.body = { failed: true };
    }
  };
}
