import type { ServerResponse } from "node:http";
import { pipeline, Readable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { createGzip, gzipSync } from "node:zlib";
import compression from "compression";
import session from "express-session";
import type { RouteHandler } from "fastify";
import { compress as compressOnHono } from "hono/compress";
import { etag } from "hono/etag";
import type { Framework } from "../../../http/frameworks.ts";
import type { Layer } from "../../../http/turn.ts";

/** Runs `change` when the head is about to be sent, as on-headers does. */
function atHead(res: ServerResponse, change: () => void): void {
  const { writeHead } = res;
  let hasRun = false;
  res.writeHead = ((status: number, ...rest: unknown[]) => {
    if (!hasRun) {
      hasRun = true;
      res.statusCode = status;
      const given = rest.find((each) => typeof each === "object") ?? {};
      const pairs = Array.isArray(given) ? [given] : Object.entries(given as object);
      for (const [name, value] of pairs) if (name) res.setHeader(name, value);
      change();
    }
    return Reflect.apply(writeHead, res, [res.statusCode]);
  }) as typeof writeHead;
}

const hooked = (res: ServerResponse) =>
  atHead(res, () => {
    res.statusCode = res.statusCode === 200 ? 202 : res.statusCode;
    res.setHeader("location", "/hooked");
    res.setHeader("x-kept", "hooked");
  });

/** Writes everything at once when the response is ended, with one more header. */
function buffer(res: ServerResponse): void {
  const { end, write } = res;
  const chunks: Buffer[] = [];
  const take = (chunk: unknown, encoding: unknown) => {
    const coding = typeof encoding === "string" ? (encoding as BufferEncoding) : "utf8";
    if (typeof chunk === "string") chunks.push(Buffer.from(chunk, coding));
    else if (chunk instanceof Uint8Array) chunks.push(Buffer.from(chunk));
  };
  res.write = ((chunk: unknown, encoding: unknown) => {
    take(chunk, encoding);
    return true;
  }) as typeof write;
  res.end = ((chunk: unknown, encoding: unknown) => {
    take(chunk, encoding);
    if (!res.headersSent) res.setHeader("x-frame", "buffered");
    Object.assign(res, { write, end });
    return res.end(Buffer.concat(chunks));
  }) as typeof end;
}

/** Ends the response some time after it is told to. */
function slowly(res: ServerResponse): void {
  const { end } = res;
  res.end = ((...args: unknown[]) => {
    res.end = end;
    setTimeout(() => Reflect.apply(end, res, args), 2);
    return res;
  }) as typeof end;
}

const never = () => {
  throw new Error("a layer of another framework");
};
const onNode = (change: (res: ServerResponse) => void): Partial<Layer> => ({
  node: async (_req, res) => change(res),
  express: () => (_req, res, next) => {
    change(res);
    next();
  },
  koa: () => async (ctx, next) => {
    change(ctx.res);
    await next();
  },
});
const onFastify = (add: NonNullable<Layer["fastify"]>): Partial<Layer> => ({ fastify: add });
/** Hooks of the application. */
const hook = (name: "onSend" | "preSerialization", run: (payload: unknown) => unknown) =>
  onFastify((app, handler) => {
    app.addHook(name as "onSend", async (_request, _reply, payload) => run(payload));
    return handler;
  });
const failure = () => Object.assign(new Error("the layer has failed"), { status: 418 });

const schema = {
  type: "object",
  properties: { a: { type: "number" }, at: { type: "string", format: "date" } },
};

/** Middleware and hooks, in the words of each framework that has them. */
const table = {
  stamp: {
    ...onNode((res) => res.setHeader("cache-control", "private").setHeader("vary", "cookie")),
    koa: () => async (ctx, next) => {
      ctx.set("cache-control", "private");
      ctx.vary("cookie");
      await next();
    },
    hono: () => async (c, next) => {
      c.header("cache-control", "private");
      c.header("vary", "cookie");
      await next();
    },
  },
  late: {
    koa: () => async (ctx, next) => {
      await next();
      ctx.set("x-kept", "late");
      if (ctx.status === 200) ctx.status = 202;
    },
    hono: () => async (c, next) => {
      await next();
      c.header("x-kept", "late");
    },
    fastify: (app, handler) => {
      app.addHook("onSend", async (_request, reply, payload) => {
        reply.header("x-kept", "late");
        if (reply.statusCode === 200) reply.code(202);
        return payload;
      });
      return handler;
    },
  },
  hooked: onNode(hooked),
  slowly: onNode(slowly),
  buffer: { express: onNode(buffer).express as Layer["express"] },
  session: {
    express: () => {
      const made = session({ secret: "a secret", resave: true, saveUninitialized: true });
      return (req, res, next) => made(req, res, next);
    },
    koa: () => async (ctx, next) => {
      await next();
      await sleep(2);
      ctx.cookies.set("sid", "1");
    },
    fastify: (app, handler) => {
      app.addHook("onSend", async (_request, reply) => {
        await sleep(2);
        reply.header("set-cookie", "sid=1");
      });
      return handler;
    },
    hono: () => async (c, next) => {
      await next();
      await sleep(2);
      c.header("set-cookie", "sid=1");
    },
  },
  compress: {
    express: () => compression({ threshold: 0 }),
    koa: () => async (ctx, next) => {
      await next();
      const { body } = ctx;
      const isMade = typeof body === "string" || Buffer.isBuffer(body) || body instanceof Readable;
      if (!isMade || ctx.headerSent || ctx.acceptsEncodings("gzip") !== "gzip") return;
      if (ctx.response.get("content-encoding") !== "") return;
      ctx.vary("Accept-Encoding");
      ctx.body = body instanceof Readable ? pipeline(body, createGzip(), () => {}) : gzipSync(body);
      ctx.set("Content-Encoding", "gzip");
    },
    hono: () => compressOnHono(),
    fastify: (app, handler) => {
      app.addHook("onSend", async ({ headers }, reply, payload) => {
        if (headers["accept-encoding"] !== "gzip" || !payload) return payload;
        if (payload instanceof ReadableStream || payload instanceof Response) return payload;
        reply.header("content-encoding", "gzip").removeHeader("content-length");
        const source = payload instanceof Readable ? payload : Readable.from([payload]);
        return pipeline(source, createGzip(), () => {});
      });
      return handler;
    },
  },
  wraps: {
    express: () => (_req, res, next) => {
      const { json } = res;
      res.json = (value) => Reflect.apply(json, res, [{ data: value }]);
      next();
    },
    koa: () => async (ctx, next) => {
      await next();
      const isPlain = Object.getPrototypeOf(ctx.body ?? "") === Object.prototype;
      if (isPlain) ctx.body = { data: ctx.body };
    },
    ...hook("preSerialization", (payload) => ({ data: payload })),
    hono: () => async (c, next) => {
      await next();
      c.res = new Response(`${await c.res.text()}!`, c.res);
    },
  },
  fails: {
    express: () => (_req, _res, next) => next(failure()),
    koa: () => async (_ctx, next) => {
      await next();
      throw failure();
    },
    hono: () => async (_c, next) => {
      await next();
      throw failure();
    },
    ...hook("onSend", () => Promise.reject(failure())),
  },
  etag: { hono: () => etag() },
  schema: onFastify((app, handler) => {
    app.addHook("onRoute", (route) => {
      route.schema = { response: { "2xx": schema } };
    });
    return handler;
  }),
  text: hook("onSend", (payload) => (typeof payload === "string" ? `${payload}!` : payload)),
  serialiser: onFastify(
    (_app, handler) =>
      function (this: never, request, reply) {
        reply.serializer((payload: unknown) => `<${JSON.stringify(payload)}>`);
        return handler.call(this, request, reply);
      } as RouteHandler,
  ),
} satisfies Record<string, Partial<Layer>>;

export type LayerName = keyof typeof table;

/** The names of those that a family has. */
export function layersOf(family: Framework["family"]): LayerName[] {
  const names = Object.keys(table) as LayerName[];
  const needed =
    family === "fetch" ? ["hono"] : family === "fastify" ? ["fastify", "node"] : [family];
  return names.filter((name) => needed.some((each) => each in table[name]));
}

export function layer(name: LayerName): Layer {
  return { express: never, koa: never, ...table[name] };
}
