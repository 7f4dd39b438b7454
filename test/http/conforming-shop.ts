import { once } from "node:events";
import { createServer, request, type Server } from "node:http";
import { getRequestListener } from "@hono/node-server";
import express5 from "express";
import express4 from "express4";
import Fastify, { type onRequestAsyncHookHandler } from "fastify";
import { Hono, type MiddlewareHandler } from "hono";
import Koa3 from "koa";
import Koa2 from "koa2";
import { onTestFinished } from "vitest";
import { submitGuard as expressGuard } from "../../src/express/index.ts";
import { submitGuard as fastifyGuard } from "../../src/fastify/index.ts";
import { submitGuard as fetchGuard } from "../../src/fetch/index.ts";
import { RedisStore, SubmitLock, type SubmitLockOptions } from "../../src/index.ts";
import { submitGuard as koaGuard } from "../../src/koa/index.ts";
import { listen } from "./http-client.ts";
import { patientTimes, sharedRedis } from "./shop.ts";

/** What the handler of a test answers. */
export interface Answer {
  readonly status: number;
  readonly body?: unknown;
  readonly headers?: Record<string, string>;
}

/** One run of the handler. */
export interface Run {
  /** How many runs came before it. */
  readonly earlier: number;
  readonly body: unknown;
}

/** How one of the frameworks is asked for what a published specification wants. */
interface GuardOf<Mount> {
  readonly options: object;
  /** Mounted in front of the guard, such as what echoes the key. */
  readonly before?: Mount;
}

interface Guards {
  readonly express: GuardOf<express5.RequestHandler>;
  readonly koa: GuardOf<Koa3.Middleware>;
  readonly fastify: GuardOf<onRequestAsyncHookHandler>;
  readonly fetch: GuardOf<MiddlewareHandler>;
}

export interface ShopParts extends Guards {
  readonly handler: (run: Run) => Answer | Promise<Answer>;
  readonly lock?: Omit<SubmitLockOptions, "store">;
}

export interface Framework {
  readonly name: string;
  serve(lock: SubmitLock, parts: ShopParts, run: (body: unknown) => Promise<Answer>): Server;
}

/** Every POST to them is guarded. */
const paths = [
  "/checkout_sessions",
  "/checkout_sessions/:id",
  "/checkout_sessions/:id/:step",
] as const;

export const frameworks: readonly Framework[] = [
  { name: "Express 5", serve: (...given) => expressServer(express5, ...given) },
  { name: "Express 4", serve: (...given) => expressServer(express4, ...given) },
  { name: "Koa 3", serve: (...given) => koaServer(Koa3, ...given) },
  { name: "Koa 2", serve: (...given) => koaServer(Koa2, ...given) },
  { name: "Fastify 5", serve: fastifyServer },
  { name: "fetch, on Hono", serve: fetchServer },
];

type Serve = Framework["serve"];

function expressServer(
  lib: typeof express5,
  ...[lock, { express }, run]: Parameters<Serve>
): Server {
  const app = lib();
  app.use(lib.json());
  if (express.before !== undefined) app.use(express.before);
  const guard = expressGuard({
    userId: (req) => req.get("x-user"),
    ...express.options,
    lock,
  });
  app.post(
    [...paths],
    guard.protect(async (req, res) => {
      const { body, headers = {}, status } = await run(req.body);
      res.status(status).set(headers).json(body);
    }),
  );
  return createServer(app);
}

function koaServer(lib: typeof Koa3, ...[lock, { koa }, run]: Parameters<Serve>): Server {
  const app = new lib();
  app.silent = true;
  app.use(async (ctx, next) => {
    const chunks: Buffer[] = [];
    for await (const chunk of ctx.req) chunks.push(chunk);
    const text = Buffer.concat(chunks).toString();
    if (text !== "") (ctx.request as { body?: unknown }).body = JSON.parse(text);
    await next();
  });
  if (koa.before !== undefined) app.use(koa.before);
  app.use(koaGuard({ userId: (ctx) => ctx.get("x-user"), ...koa.options, lock }));
  app.use(async (ctx) => {
    const parsed = (ctx.request as { body?: unknown }).body;
    const { body, headers = {}, status } = await run(parsed);
    ctx.status = status;
    ctx.set(headers);
    ctx.body = body as object;
  });
  return createServer(app.callback());
}

function fastifyServer(...[lock, { fastify }, run]: Parameters<Serve>): Server {
  const app = Fastify();
  if (fastify.before !== undefined) app.addHook("onRequest", fastify.before);
  const guard = fastifyGuard({
    userId: ({ headers }) => headers["x-user"]?.toString(),
    ...fastify.options,
    lock,
  });
  const handler = guard.protect(async (request, reply) => {
    const { body, headers = {}, status } = await run(request.body);
    return await reply.code(status).headers(headers).send(body);
  });
  for (const path of paths) app.post(path, handler);
  const ready = app.ready();
  return createServer((req, res) => void ready.then(() => app.routing(req, res)));
}

function fetchServer(...[lock, { fetch }, run]: Parameters<Serve>): Server {
  const app = new Hono();
  if (fetch.before !== undefined) app.use(fetch.before);
  const guard = fetchGuard({
    userId: ({ headers }) => headers.get("x-user"),
    ...fetch.options,
    lock,
  });
  const handler = guard.protect(async (request: Request) => {
    const sent = await request.json();
    const answer = await run(sent);
    return Response.json(answer.body ?? null, answer);
  });
  for (const path of paths) app.post(path, (c) => handler(c.req.raw));
  return createServer(getRequestListener(app.fetch));
}

/** One answer, as the client has it. */
export interface Reply {
  readonly status: number;
  readonly headers: Record<string, string | string[] | undefined>;
  readonly text: string;
  readonly json: Record<string, unknown>;
}

export interface Submit {
  readonly user?: string;
  readonly path?: string;
  readonly method?: string;
  /** The lines of the header. */
  readonly key?: string | readonly string[] | undefined;
  /** JSON; text as it stands, to be sent as JSON. */
  readonly body?: unknown;
  readonly headers?: Record<string, string>;
}

export async function openConformingShop(
  framework: Framework,
  parts: ShopParts,
): Promise<ConformingShop> {
  const shop = new ConformingShop(framework, parts);
  await shop.listen();
  onTestFinished(() => shop.close());
  return shop;
}

/** A shop of one process, on the Redis that all test files share. */
export class ConformingShop {
  readonly lock: SubmitLock;
  readonly runs: Run[] = [];
  readonly #server: Server;
  #port = 0;

  constructor(framework: Framework, parts: ShopParts) {
    const store = new RedisStore(sharedRedis());
    this.lock = new SubmitLock({ ...patientTimes, ...parts.lock, store });
    this.#server = framework.serve(this.lock, parts, async (body) => {
      const run = { earlier: this.runs.length, body };
      this.runs.push(run);
      return await parts.handler(run);
    });
  }

  async listen(): Promise<void> {
    this.#port = await listen(this.#server);
  }

  /** One request on a connection of its own. */
  async submit(submit: Submit): Promise<Reply> {
    const { user, path = "/checkout_sessions", method = "POST", key, body, headers } = submit;
    const text = typeof body === "string" ? body : JSON.stringify(body ?? {});
    const req = request({ host: "127.0.0.1", port: this.#port, method, path, agent: false });
    if (user !== undefined) req.setHeader("X-User", user);
    if (key !== undefined) req.setHeader("Idempotency-Key", key);
    for (const [name, value] of Object.entries(headers ?? {})) req.setHeader(name, value);
    req.setHeader("Content-Type", "application/json");
    req.end(text);
    const [res] = await once(req, "response");
    const chunks: Buffer[] = [];
    for await (const chunk of res) chunks.push(chunk);
    const got = Buffer.concat(chunks).toString();
    const isJson = /json/.test(String(res.headers["content-type"]));
    return {
      status: res.statusCode,
      headers: res.headers,
      text: got,
      json: isJson ? JSON.parse(got) : {},
    };
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    const closed = once(this.#server, "close");
    this.#server.close();
    await Promise.all([closed, this.lock.close({ timeoutMs: 0 })]);
  }
}
