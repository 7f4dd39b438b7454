import type { IncomingMessage, RequestListener } from "node:http";
import type Koa from "koa";
import type { Context, Middleware } from "koa";
import type { Lease } from "../../src/index.ts";
import {
  type IdempotencyOptions,
  type RequestSubmission,
  submitGuard,
} from "../../src/koa/index.ts";
import { type AppParts, answersOf, orderPaths, type Told, type Turn, userOf } from "./turn.ts";

/** An application with the order handler, and an error handler around everything. */
export function koaListener(lib: typeof Koa, parts: AppParts): RequestListener {
  const app = new lib();
  const { paths = orderPaths } = parts;
  app.silent = true;
  // Signs the cookie of a session.
  app.keys = ["a key for tests"];
  app.use(errorHandler(parts));
  if (!parts.unparsed) app.use(readBody);
  for (const layer of parts.outside ?? []) app.use(layer.koa());
  if (parts.lock !== undefined) app.use(guardOf(parts));
  for (const layer of parts.inside ?? []) app.use(layer.koa());
  // Not async, so that a handler that throws at once really does.
  app.use((ctx, next) => {
    return paths.includes(ctx.path) ? (parts.handler(turnOf(ctx)) as Promise<unknown>) : next();
  });
  return app.callback() as RequestListener;
}

function guardOf(parts: AppParts): Middleware {
  const { skip, userId = userOf, idempotency, ...words } = parts.guard ?? {};
  return submitGuard({
    ...words,
    ...answerFunctions(parts),
    idempotency: idempotency && onContext(idempotency),
    lock: parts.lock as NonNullable<AppParts["lock"]>,
    userId: (ctx) => userId(ctx.req) as string,
    skip: skip && ((ctx) => skip(ctx.req)),
    ...parts.recipe?.koa,
  });
}

function onContext(options: IdempotencyOptions<IncomingMessage>): IdempotencyOptions<Context> {
  const { fingerprint, submissionId, ...words } = options;
  return {
    ...words,
    submissionId: submissionId && ((ctx) => submissionId(withBody(ctx))),
    fingerprint:
      fingerprint instanceof Function ? (ctx) => fingerprint(withBody(ctx)) : fingerprint,
  };
}

/** Node's request with the parsed body, where Express has it. */
function withBody(ctx: Context): IncomingMessage {
  return Object.assign(ctx.req, { body: parsedBody(ctx) });
}

function answerFunctions(parts: AppParts): object {
  return answersOf(parts, (answer) => (ctx: Context, told: Told) => {
    const [status, body] = answer(told);
    ctx.status = status;
    ctx.body = body;
  });
}

function parsedBody(ctx: Context): unknown {
  return (ctx.request as { body?: unknown }).body;
}

/** What a body parser does: afterwards `req.destroyed` is true on a healthy connection. */
const readBody: Middleware = async (ctx, next) => {
  // It leaves alone what is not its own.
  if (/multipart|octet-stream/.test(ctx.get("content-type"))) return await next();
  const chunks: Buffer[] = [];
  for await (const chunk of ctx.req) chunks.push(chunk);
  const text = Buffer.concat(chunks).toString();
  (ctx.request as { body?: unknown }).body = text === "" ? undefined : JSON.parse(text);
  await next();
};

function turnOf(ctx: Context): Turn {
  return {
    req: ctx.req,
    res: ctx.res,
    get lease(): Lease | undefined {
      return ctx.state["submitLease"];
    },
    get submission(): RequestSubmission | undefined {
      return ctx.state["submission"];
    },
    get parsed() {
      return parsedBody(ctx);
    },
    express: undefined,
    ctx,
    reply: undefined,
    hono: undefined,
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
