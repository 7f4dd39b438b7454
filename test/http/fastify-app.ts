import type { IncomingMessage, RequestListener } from "node:http";
import Fastify, {
  type FastifyInstance,
  type FastifyReply,
  type FastifyRequest,
  type RouteHandler,
} from "fastify";
import { submitGuard } from "../../src/fastify/index.ts";
import {
  type AppParts,
  answersOf,
  type Layer,
  orderPaths,
  type Told,
  type Turn,
  userOf,
} from "./turn.ts";

/** An application with the order handler, and an error handler. */
export function fastifyListener(parts: AppParts, http: 1 | 2): RequestListener {
  const app = Fastify(http === 2 ? ({ http2: true } as object) : {});
  app.removeAllContentTypeParsers();
  if (parts.unparsed) app.addContentTypeParser("*", (_request, _payload, done) => done(null));
  else {
    app.addContentTypeParser("*", { parseAs: "string" }, (request, body, done) => {
      // It leaves alone what is not its own.
      const isOther = /multipart|octet-stream/.test(request.headers["content-type"] ?? "");
      try {
        done(null, isOther || body === "" ? undefined : JSON.parse(String(body)));
      } catch (error) {
        done(error as Error);
      }
    });
  }
  app.setErrorHandler(async (error, _request, reply) => {
    parts.onError?.(error);
    await parts.beforeErrorAnswer?.();
    const { status } = error as { status?: number };
    return await reply.code(status ?? 500).send({ failed: true });
  });
  const handler = mount(app, parts.inside, (request, reply) =>
    parts.handler(turnOf(request, reply)),
  );
  // Fastify asks an async handler that has sent to return the reply, which the guard does for it.
  const bare: RouteHandler = function (request, reply) {
    const returned: unknown = handler.call(this, request, reply);
    if (!(returned instanceof Promise)) return returned;
    return returned.then((value: unknown) => (answered.has(reply) ? reply : value));
  };
  const guarded = parts.lock === undefined ? bare : guardOf(parts).protect(handler);
  const mounted = mount(app, parts.outside, guarded);
  for (const path of parts.paths ?? orderPaths) app.all(path, mounted);
  const ready = app.ready();
  let isReady = false;
  return (req, res) => {
    if (isReady) app.routing(req, res);
    else {
      void ready.then(() => {
        isReady = true;
        app.routing(req, res);
      });
    }
  };
}

/** The innermost first: so do answers pass the hooks. */
function mount(
  app: FastifyInstance,
  layers: readonly Layer[] = [],
  handler: RouteHandler,
): RouteHandler {
  return layers.reduceRight((inner, layer) => {
    if (layer.fastify !== undefined) return layer.fastify(app, inner);
    const { node } = layer;
    if (node === undefined) throw new Error("this layer is for Express and Koa");
    app.addHook("preHandler", async (request, reply) => node(request.raw, reply.raw));
    return inner;
  }, handler);
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
    userId: ({ raw }) => userId(raw) as string,
    skip: skip && (({ raw }) => skip(raw)),
    ...parts.recipe?.fastify,
  });
}

/** Gives a callback Node's request with the parsed body, where Express has it. */
function onRequest<Result>(callback: ((req: IncomingMessage) => Result) | undefined) {
  if (callback === undefined) return undefined;
  return ({ body, raw }: FastifyRequest) => callback(Object.assign(raw, { body }));
}

function answerFunctions(parts: AppParts): object {
  return answersOf(
    parts,
    (answer) => (_request: FastifyRequest, reply: FastifyReply, told: Told) => {
      const [status, body] = answer(told);
      reply.code(status);
      return body;
    },
  );
}

const answered = new WeakSet<FastifyReply>();

function turnOf(request: FastifyRequest, reply: FastifyReply): Turn {
  return {
    req: request.raw,
    res: reply.raw,
    get lease() {
      return request.submitLease;
    },
    get submission() {
      return request.submission;
    },
    parsed: request.body,
    express: undefined,
    ctx: undefined,
    reply,
    hono: undefined,
    answer(status, body, type) {
      answered.add(reply);
      reply.code(status);
      if (type !== undefined) reply.type(type);
      // Fastify would send a body, which HTTP/2 does not allow with 205.
      void reply.send(status === 205 ? undefined : (body ?? undefined));
    },
    // An async handler that sends by itself has to wait, or Fastify sends an empty answer.
    stream: async (source) => await reply.send(source),
    byHand: () => reply.hijack().raw,
    fail(error) {
      throw error;
    },
  };
}
