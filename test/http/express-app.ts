import type { RequestListener } from "node:http";
import { pipeline } from "node:stream/promises";
import type express5 from "express";
import type { ErrorRequestHandler, Request, RequestHandler, Response } from "express";
import { type SubmitGuard, submitGuard } from "../../src/express/index.ts";
import { type AppParts, answersOf, orderPaths, type Told, type Turn, userOf } from "./turn.ts";

/** An application with the order handler, and an error handler. */
export function expressListener(
  lib: typeof express5,
  mount: "protect" | "guard",
  parts: AppParts,
): RequestListener {
  const app = lib();
  const handler = orderHandler(parts);
  const paths = [...(parts.paths ?? orderPaths)];
  const inside = (parts.inside ?? []).map((layer) => layer.express());
  // Parsed first, as usual: afterwards `req.destroyed` is true on a healthy connection.
  if (!parts.unparsed) app.use(lib.json());
  for (const layer of parts.outside ?? []) app.use(layer.express());
  if (parts.lock === undefined) {
    app.all(paths, ...inside, forwarding(handler));
  } else {
    const guard: SubmitGuard = submitGuard({
      ...(parts.guard as object),
      ...answerFunctions(parts),
      lock: parts.lock,
      userId: (parts.guard?.userId as typeof userOf | undefined) ?? userOf,
      ...parts.recipe?.express,
    });
    if (mount === "guard") app.all(paths, guard, ...inside, forwarding(handler));
    // Something can stand between guard and handler only if the guard is mounted before it as well.
    else if (inside.length > 0) app.all(paths, guard, ...inside, guard.protect(handler));
    else app.all(paths, guard.protect(handler));
  }
  app.use(errorHandler(parts));
  return app;
}

function answerFunctions(parts: AppParts): object {
  return answersOf(
    parts,
    (answer) => (_req: Request, res: Response, _next: unknown, told: Told) => {
      const [status, body] = answer(told);
      res.status(status).json(body);
    },
  );
}

function orderHandler(parts: AppParts): RequestHandler {
  return (req, res, next) => parts.handler(turnOf(req, res, next)) as undefined;
}

/** What users of Express 4 put round an async handler; on Express 5 it changes nothing. */
function forwarding(handler: RequestHandler): RequestHandler {
  return (req, res, next) => {
    const returned: unknown = handler(req, res, next);
    if (returned instanceof Promise) void returned.catch(next);
  };
}

function turnOf(req: Request, res: Response, next: (error?: unknown) => void): Turn {
  return {
    req,
    res,
    get lease() {
      return req.submitLease;
    },
    get submission() {
      return req.submission;
    },
    get parsed() {
      return req.body;
    },
    express: { req, res },
    ctx: undefined,
    reply: undefined,
    hono: undefined,
    answer(status, body, type) {
      res.status(status);
      if (type !== undefined) res.type(type);
      if (typeof body === "object" && body !== null) res.json(body);
      else if (body === null) res.end();
      else res.send(body);
    },
    stream: (source) => pipeline(source, res),
    byHand: () => res,
    fail: next,
  };
}

function errorHandler(parts: AppParts): ErrorRequestHandler {
  return (error, _req, res, next) => {
    parts.onError?.(error);
    if (res.headersSent) return next(error);
    const answer = () => res.status(error?.status ?? 500).json({ failed: true });
    if (parts.beforeErrorAnswer === undefined) answer();
    else void parts.beforeErrorAnswer().then(answer);
  };
}
