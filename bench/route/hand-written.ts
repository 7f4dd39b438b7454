import { randomUUID } from "node:crypto";
import type { RequestHandler } from "express";
import type { Redis } from "ioredis";
import type { Middleware } from "koa";
import { ttlMs, withDeleteIfMine } from "../locker.ts";
import { loadScripts, openScriptsAlone } from "../scripts-alone.ts";

/** What one writes in twenty lines: nothing is confirmed, extended or bounded. */
export function expressLock(client: Redis): RequestHandler {
  const redis = withDeleteIfMine(client);
  return async (req, res, next) => {
    const key = `lock:submit:${req.get("x-user-id")}`;
    const ownerId = randomUUID();
    try {
      if ((await redis.set(key, ownerId, "PX", ttlMs, "NX")) !== "OK") {
        res.status(409).json({ error: "Another submission of yours is being processed." });
        return;
      }
    } catch (error) {
      next(error);
      return;
    }
    res.once("finish", () => {
      redis.deleteIfMine(key, ownerId).catch(() => {});
    });
    next();
  };
}

/** The same for Koa. The release is not awaited: the answer does not wait for it either. */
export function koaLock(client: Redis): Middleware {
  const redis = withDeleteIfMine(client);
  return async (ctx, next) => {
    const key = `lock:submit:${ctx.get("x-user-id")}`;
    const ownerId = randomUUID();
    if ((await redis.set(key, ownerId, "PX", ttlMs, "NX")) !== "OK") {
      ctx.status = 409;
      ctx.body = { error: "Another submission of yours is being processed." };
      return;
    }
    ctx.res.once("finish", () => {
      redis.deleteIfMine(key, ownerId).catch(() => {});
    });
    await next();
  };
}

/** The limit: what submit-lock sends, and nothing around it. All its users are others, so it knows no 409. */
export function expressScripts(client: Redis): RequestHandler {
  void loadScripts(client);
  const scripts = openScriptsAlone(client);
  return async (req, res, next) => {
    try {
      const hold = await scripts.acquire(req.get("x-user-id") ?? "");
      res.once("finish", () => {
        scripts.release(hold).catch(() => {});
      });
    } catch (error) {
      next(error);
      return;
    }
    next();
  };
}

export function koaScripts(client: Redis): Middleware {
  void loadScripts(client);
  const scripts = openScriptsAlone(client);
  return async (ctx, next) => {
    const hold = await scripts.acquire(ctx.get("x-user-id"));
    ctx.res.once("finish", () => {
      scripts.release(hold).catch(() => {});
    });
    await next();
  };
}
