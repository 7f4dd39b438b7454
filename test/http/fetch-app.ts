import type { IncomingMessage, RequestListener, ServerResponse } from "node:http";
import { Readable } from "node:stream";
import { getRequestListener } from "@hono/node-server";
import { type Context, Hono } from "hono";
import { leaseOf, submissionOf, submitGuard } from "../../src/fetch/index.ts";
import { type AppParts, answersOf, orderPaths, type Told, type Turn, userOf } from "./turn.ts";

type Body = ConstructorParameters<typeof Response>[0];

interface Env {
  Bindings: { incoming: IncomingMessage; outgoing: ServerResponse };
}

type Ctx = Context<Env>;

/** An application of Hono on Node's server, with the order handler. */
export function fetchListener(parts: AppParts): RequestListener {
  const app = new Hono<Env>();
  app.onError(async (error, c) => {
    parts.onError?.(error);
    await parts.beforeErrorAnswer?.();
    const { status } = error as { status?: number };
    return c.json({ failed: true }, (status ?? 500) as 500);
  });
  for (const layer of [...(parts.outside ?? []), ...(parts.inside ?? [])]) {
    const { hono, node } = layer;
    if (hono !== undefined) app.use(hono());
    else if (node === undefined) throw new Error("this layer is for Express and Koa");
    else {
      app.use(async (c, next) => {
        await node(c.env.incoming, c.env.outgoing);
        await next();
      });
    }
  }
  const handler = async (_request: Request, c: Ctx): Promise<Response> => {
    const { turn, answered } = await turnOf(c);
    await parts.handler(turn);
    return answered();
  };
  const protectedHandler = parts.lock === undefined ? handler : guardOf(parts).protect(handler);
  for (const path of parts.paths ?? orderPaths)
    app.all(path, (c) => protectedHandler(c.req.raw, c));
  return getRequestListener(app.fetch);
}

function guardOf(parts: AppParts) {
  const { skip, userId = userOf, idempotency, ...words } = parts.guard ?? {};
  const fingerprint = idempotency?.fingerprint;
  return submitGuard({
    ...words,
    ...answerFunctions(parts),
    idempotency: idempotency && {
      ...idempotency,
      submissionId: onRequest(idempotency.submissionId),
      fingerprint: fingerprint instanceof Function ? onRequest(fingerprint) : fingerprint,
    },
    lock: parts.lock as NonNullable<AppParts["lock"]>,
    userId: (request) => userId(headersOf(request)) as string,
    skip: skip && ((request) => skip(headersOf(request))),
    ...parts.recipe?.fetch,
  });
}

/** As much of Node's request as the callbacks of the tests read. */
function headersOf({ headers, method, url }: Request, body?: unknown): IncomingMessage {
  return { headers: Object.fromEntries(headers), method, url, body } as never;
}

function onRequest<Result>(
  callback: ((req: IncomingMessage) => Result | Promise<Result>) | undefined,
) {
  if (callback === undefined) return undefined;
  return async (request: Request): Promise<Result> => {
    const body: unknown = await request
      .clone()
      .json()
      .catch(() => undefined);
    return await callback(headersOf(request, body));
  };
}

function answerFunctions(parts: AppParts): object {
  return answersOf(parts, (answer) => (_request: Request, told: Told) => {
    const [status, body] = answer(told);
    return Response.json(body, { status });
  });
}

/** Like `Readable.toWeb`, whose `cancel` does not wait until the source has cleaned up. */
function webStream(source: Readable): Body {
  const reader = Readable.toWeb(source).getReader();
  return new ReadableStream({
    async pull(controller) {
      const part = await reader.read();
      if (part.done) controller.close();
      else controller.enqueue(part.value);
    },
    async cancel(reason) {
      const closed = source.closed || new Promise((resolve) => source.once("close", resolve));
      await reader.cancel(reason);
      await closed;
    },
  }) as Body;
}

async function turnOf(c: Ctx): Promise<{ turn: Turn; answered: () => Response }> {
  const { incoming, outgoing } = c.env;
  const request = c.req.raw;
  // Left to the handler, as the parsers of the other applications leave it.
  const isOther = /multipart|octet-stream/.test(request.headers.get("content-type") ?? "");
  const text = isOther ? "" : await request.text();
  const headers = new Headers();
  let status = 404;
  let body: Body = null;
  let response: Response | undefined;
  // A handler of fetch has no response of Node: what it sets goes into its own.
  const res = Object.assign(Object.create(outgoing), {
    setHeader: (name: string, value: string | string[]) => {
      headers.delete(name);
      for (const each of [value].flat()) headers.append(name, each);
    },
    getHeader: (name: string) => headers.get(name) ?? undefined,
    once: outgoing.once.bind(outgoing),
  }) as ServerResponse;
  Object.defineProperty(res, "statusCode", {
    get: () => status,
    set: (given: number) => {
      status = given;
    },
  });
  const turn: Turn = {
    req: incoming,
    res,
    get lease() {
      return leaseOf(request);
    },
    get submission() {
      return submissionOf(request);
    },
    get parsed() {
      return text === "" ? undefined : JSON.parse(text);
    },
    express: undefined,
    ctx: undefined,
    reply: undefined,
    hono: {
      c,
      respond(given) {
        response = given;
      },
    },
    answer(given, value, type) {
      status = given;
      if (type !== undefined) headers.set("content-type", type);
      if ([204, 205, 304].includes(given) || value === null) body = null;
      else if (typeof value === "string") body = value;
      else {
        headers.set("content-type", "application/json; charset=utf-8");
        body = JSON.stringify(value);
      }
    },
    stream(source) {
      if (status === 404) status = 200;
      body = source instanceof ReadableStream ? source : webStream(source);
      return undefined;
    },
    byHand() {
      throw new Error("fetch has no response to write by hand");
    },
    fail(error) {
      throw error;
    },
  };
  return { turn, answered: () => response ?? new Response(body, { status, headers }) };
}
