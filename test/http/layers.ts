import type { IncomingMessage, ServerResponse } from "node:http";
import { pipeline, Readable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { createGzip } from "node:zlib";
import compression from "compression";
import type { RequestHandler } from "express";
import session, { MemoryStore } from "express-session";
import type { Context, Next } from "hono";
import { compress as compressOnHono } from "hono/compress";
import type { Middleware } from "koa";
import { vi } from "vitest";
import * as express from "../../src/express/index.ts";
import * as fastify from "../../src/fastify/index.ts";
import * as fetch from "../../src/fetch/index.ts";
import type * as entry from "../../src/index.ts";
import * as koa from "../../src/koa/index.ts";
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

/** Middleware for Koa alone: a suite that mounts it never does so on another framework. */
export function onKoa(middleware: Middleware): Layer {
  return { ...nowhere, koa: () => middleware };
}

export function onExpress(handler: RequestHandler): Layer {
  return { ...nowhere, express: () => handler };
}

const never = () => {
  throw new Error("a layer of another framework");
};
const nowhere: Layer = { express: never, koa: never };

const guards = {
  expressGuard: express.submitGuard,
  fastifyGuard: fastify.submitGuard,
  fetchGuard: fetch.submitGuard,
  koaGuard: koa.submitGuard,
};
export type Guards = typeof guards;

/** One more guard, perhaps of another copy of the package, or with more options. */
export function guardLayer(
  lock: express.SubmitGuardOptions["lock"],
  { expressGuard, fastifyGuard, fetchGuard, koaGuard }: Guards = guards,
  options: object = {},
): Layer {
  return {
    fastify: (_app, handler) =>
      fastifyGuard({ ...options, lock, userId: ({ raw }) => userOf(raw) }).protect(handler),
    hono: () => {
      const guard = fetchGuard({
        ...options,
        lock,
        userId: ({ headers }) => headers.get("x-user"),
      });
      const around = guard.protect(async (_request: Request, c: Context, next: Next) => {
        await next();
        return c.res;
      });
      // Hono takes no returned response in place of one that is there.
      return async (c, next) => {
        c.res = await around(c.req.raw, c, next);
      };
    },
    express: () => expressGuard({ ...options, lock, userId: userOf }),
    koa: () => koaGuard({ ...options, lock, userId: (ctx) => userOf(ctx.req) }),
  };
}

export function compressionLayer(): Layer {
  return {
    fastify: (app, handler) => {
      app.addHook("onSend", async ({ headers }, reply, payload) => {
        if (headers["accept-encoding"] !== "gzip") return payload;
        reply.header("content-encoding", "gzip").removeHeader("content-length");
        const source = payload instanceof Readable ? payload : Readable.from([payload]);
        return pipeline(source, createGzip(), () => {});
      });
      return handler;
    },
    hono: () => compressOnHono(),
    express: () => compression({ threshold: 0 }),
    // As koa-compress does.
    koa: () => async (ctx, next) => {
      await next();
      const { body } = ctx;
      const isEmpty = ctx.respond === false || body === undefined || body === null;
      if (isEmpty || ctx.get("accept-encoding") !== "gzip" || !ctx.writable) return;
      ctx.set("content-encoding", "gzip");
      ctx.remove("content-length");
      const isBytes = typeof body === "string" || Buffer.isBuffer(body);
      const source = body instanceof Readable ? body : undefined;
      const zipped = createGzip();
      ctx.body = zipped;
      if (source !== undefined) source.pipe(zipped);
      else zipped.end(isBytes ? body : JSON.stringify(body));
    },
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
  const save = async () => {
    await sleep(saveMs);
    saved.push(id);
  };
  return {
    saved,
    fastify: (app, handler) => {
      app.addHook("onSend", async (_request, reply) => {
        await save();
        reply.header("set-cookie", `sid=${id}`);
      });
      return handler;
    },
    hono: () => async (c, next) => {
      await next();
      await save();
      c.header("set-cookie", `sid=${id}`);
    },
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
    // As koa-session does, also where what is inside it fails.
    koa: () => async (ctx, next) => {
      try {
        await next();
      } finally {
        await save();
        if (!ctx.headerSent) ctx.cookies.set("sid", id);
      }
    },
  };
}

export interface Copy extends Guards {
  readonly SubmitLock: typeof entry.SubmitLock;
  readonly Store: typeof entry.RedisStore;
}

/** The package once more, with no module in common with the one that a test imports. */
export async function anotherCopy(): Promise<Copy> {
  vi.resetModules();
  const { submitGuard: expressGuard } = await import("../../src/express/index.ts");
  const { submitGuard: fastifyGuard } = await import("../../src/fastify/index.ts");
  const { submitGuard: fetchGuard } = await import("../../src/fetch/index.ts");
  const { submitGuard: koaGuard } = await import("../../src/koa/index.ts");
  const { SubmitLock, RedisStore: Store } = await import("../../src/index.ts");
  return { expressGuard, fastifyGuard, fetchGuard, koaGuard, SubmitLock, Store };
}
