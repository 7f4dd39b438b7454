import type { IncomingMessage, ServerResponse } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import compression from "compression";
import session, { MemoryStore } from "express-session";
import compress from "koa-compress";
import koaSession from "koa-session";
import { submitGuard as expressGuard, type LockLike } from "../../src/express/index.ts";
import { submitGuard as koaGuard } from "../../src/koa/index.ts";
import { type Layer, userOf } from "./turn.ts";

/** Does something with each request before it goes on. */
export function layerThatWaits(
  what: (req: IncomingMessage, res: ServerResponse) => Promise<void>,
): Layer {
  return {
    node: what,
    express: () => (req, res, next) => void what(req, res).then(() => next(), next),
    koa: () => async (ctx, next) => {
      await what(ctx.req, ctx.res);
      await next();
    },
  };
}

/** One more guard, perhaps of another copy of the package. */
export function guardLayer(
  lock: LockLike,
  adapters: { expressGuard: typeof expressGuard; koaGuard: typeof koaGuard } = {
    expressGuard,
    koaGuard,
  },
): Layer {
  return {
    express: () => adapters.expressGuard({ lock, userId: userOf }),
    koa: () => adapters.koaGuard({ lock, userId: (ctx) => userOf(ctx.req) }),
  };
}

export function compressionLayer(): Layer {
  return {
    express: () => compression({ threshold: 0 }),
    koa: () => compress({ threshold: 0 }),
  };
}

/** A session that each request changes, and whose store takes its time to save it. */
export interface SessionLayer extends Layer {
  readonly saved: string[];
}

export function sessionLayer(saveMs: number): SessionLayer {
  const saved: string[] = [];
  const id = "the-session";
  class SlowStore extends MemoryStore {
    override set(...[key, data, callback]: Parameters<MemoryStore["set"]>): void {
      setTimeout(() => {
        saved.push(key);
        super.set(key, data, callback);
      }, saveMs);
    }
  }
  const koaStore = {
    get: async () => undefined,
    set: async (key: string) => {
      await sleep(saveMs);
      saved.push(key);
    },
    destroy: async () => {},
  };
  return {
    saved,
    express: () => {
      const middleware = session({
        secret: "a secret for tests",
        genid: () => id,
        resave: true,
        saveUninitialized: true,
        store: new SlowStore(),
      });
      return (req, res, next) =>
        middleware(req, res, (error?: unknown) => {
          if (req.session) (req.session as { seen?: boolean }).seen = true;
          next(error);
        });
    },
    koa: () => {
      const made: { middleware?: ReturnType<typeof koaSession> } = {};
      return async (ctx, next) => {
        made.middleware ??= koaSession({ store: koaStore, genid: () => id }, ctx.app as never);
        await made.middleware(ctx as never, async () => {
          if (ctx["session"]) (ctx["session"] as { seen?: boolean }).seen = true;
          await next();
        });
      };
    },
  };
}
