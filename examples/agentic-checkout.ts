// What two protocols ask of the routes that an agent posts to: section 6 of the Agentic Commerce
// Protocol's checkout (2026-04-17) on each framework, and the Universal Commerce Protocol (v2026-04-08)
// on Express and Koa. test/http/once-acp.test.ts holds the first against each sentence of that section,
// test/docs/agents.test.ts the second.
import express, { type Request, type RequestHandler, type Response } from "express";
import type { FastifyReply, FastifyRequest } from "fastify";
import type { MiddlewareHandler } from "hono";
import type { Context, Middleware } from "koa";
import { fingerprintOf } from "submit-lock";
import type {
  Contended,
  KeyMissing,
  Mismatch,
  SubmitGuardOptions,
  Unavailable,
} from "submit-lock/express";
import type { SubmitGuardOptions as FastifyGuardOptions } from "submit-lock/fastify";
import type { SubmitGuardOptions as FetchGuardOptions } from "submit-lock/fetch";
import type { SubmitGuardOptions as KoaGuardOptions } from "submit-lock/koa";

/** How submissions are recognised. */
const idempotency = {
  key: "required",
  store: "final",
  // At least 24 hours are asked for. They count from the answer, by Redis' clock as it was estimated.
  retainMs: 25 * 3_600_000,
  maxBodyBytes: 1_048_576,
} as const;

/**
 * One lock a checkout session: the identity behind the bearer token is the agent's, and all its
 * customers share it. A session that is being created has no id yet; its key has to do.
 */
export function lockName(
  identity: string | undefined,
  sessionId: string | undefined,
  key: string | undefined,
): string | undefined {
  if (identity === undefined) return undefined;
  if (sessionId !== undefined) return `${identity}:${sessionId}`;
  return `${identity}:new:${fingerprintOf(key ?? "")}`;
}

interface Refused {
  readonly status: number;
  readonly headers: Record<string, string>;
  readonly body: { readonly type: string; readonly code: string; readonly message: string };
}

/** The protocol's errors are flat, and not problem documents. */
export function refusalOf(info: Contended | KeyMissing | Mismatch | Unavailable): Refused {
  switch (info.reason) {
    case "key-missing":
      return refused(
        400,
        "idempotency_key_required",
        "Idempotency-Key header is required on all POST requests",
      );
    case "key-invalid":
      return refused(
        400,
        "idempotency_key_invalid",
        `The Idempotency-Key header cannot be read. ${info.why}`,
      );
    case "id-invalid":
      return refused(400, "idempotency_id_invalid", `${info.why}`);
    case "mismatch":
      return refused(
        422,
        "idempotency_conflict",
        "Idempotency-Key has already been used with a different request body",
      );
    case "unavailable":
      return refused(
        503,
        "submit_unavailable",
        "Nothing was done. Try again in a moment",
        "service_unavailable",
      );
    case "contended":
      if (info.answerUnavailable) {
        return refused(
          409,
          "idempotency_answer_unavailable",
          "This request was processed, but its answer was not kept",
        );
      }
      return info.sameSubmission
        ? refused(
            409,
            "idempotency_in_flight",
            "A request with this Idempotency-Key is currently being processed",
          )
        : refused(
            409,
            "submit_contended",
            "Another request of this checkout session is currently being processed",
          );
  }
}

function refused(status: number, code: string, message: string, type = "invalid_request"): Refused {
  const mayBeRetried =
    code !== "idempotency_answer_unavailable" && (status === 409 || status === 503);
  return {
    status,
    headers: mayBeRetried ? { "Retry-After": "1" } : {},
    body: { type, code, message },
  };
}

/** In front of the guard: then replays and refusals have the key, too. */
export const echoKey: RequestHandler = (req, res, next) => {
  const key = req.get("idempotency-key");
  if (key !== undefined) res.set("Idempotency-Key", key);
  next();
};

type Refusal = Parameters<typeof refusalOf>[0];

const answer = (_req: Request, res: Response, _next: unknown, info: Refusal) => {
  const { status, headers, body } = refusalOf(info);
  res.status(status).set(headers).json(body);
};

/** Beside `lock` and `userId`, on Express. In front of the guard stands `express.json()`. */
export const agentic = {
  // The body alone, without the query. A cancel may have none.
  idempotency: { ...idempotency, fingerprint: (req) => req.body ?? null },
  onKeyMissing: answer,
  onMismatch: answer,
  onContended: answer,
  onUnavailable: answer,
} satisfies Partial<SubmitGuardOptions>;

/** The same for Koa. */
export const echoKeyOnKoa: Middleware = async (ctx, next) => {
  const key = ctx.get("idempotency-key");
  if (key !== "") ctx.set("Idempotency-Key", key);
  await next();
};

const answerOnKoa = (ctx: Context, info: Refusal) => {
  const { status, headers, body } = refusalOf(info);
  ctx.status = status;
  ctx.set(headers);
  ctx.body = body;
};

/** Beside `lock` and `userId`, on Koa. In front of the guard stands a parser of JSON bodies. */
export const agenticOnKoa = {
  idempotency: {
    ...idempotency,
    fingerprint: (ctx) => (ctx.request as { body?: unknown }).body ?? null,
  },
  onKeyMissing: answerOnKoa,
  onMismatch: answerOnKoa,
  onContended: answerOnKoa,
  onUnavailable: answerOnKoa,
} satisfies Partial<KoaGuardOptions>;

/** The same for Fastify, as an `onRequest` hook. */
export const echoKeyOnFastify = async (request: FastifyRequest, reply: FastifyReply) => {
  const key = request.headers["idempotency-key"];
  if (key !== undefined) reply.header("Idempotency-Key", key);
};

const answerOnFastify = (_request: FastifyRequest, reply: FastifyReply, info: Refusal) => {
  const { status, headers, body } = refusalOf(info);
  reply.code(status).headers(headers);
  return body;
};

/** Beside `lock` and `userId`, on Fastify. */
export const agenticOnFastify = {
  idempotency: { ...idempotency, fingerprint: ({ body }) => body ?? null },
  onKeyMissing: answerOnFastify,
  onMismatch: answerOnFastify,
  onContended: answerOnFastify,
  onUnavailable: answerOnFastify,
} satisfies Partial<FastifyGuardOptions>;

/** The same for Hono. */
export const echoKeyOnHono: MiddlewareHandler = async (c, next) => {
  await next();
  const key = c.req.header("idempotency-key");
  if (key !== undefined) c.header("Idempotency-Key", key);
};

const answerOnFetch = (_request: globalThis.Request, info: Refusal) => {
  const { status, headers, body } = refusalOf(info);
  return globalThis.Response.json(body, { status, headers });
};

/** Beside `lock` and `userId`, for a handler of fetch. In front of it stands a limit of the body. */
export const agenticOnFetch = {
  idempotency: {
    ...idempotency,
    // The handler refuses what is no JSON.
    fingerprint: (request: globalThis.Request) =>
      request
        .clone()
        .json()
        .catch(() => null),
  },
  onKeyMissing: answerOnFetch,
  onMismatch: answerOnFetch,
  onContended: answerOnFetch,
  onUnavailable: answerOnFetch,
} satisfies Partial<FetchGuardOptions>;

/** How the Universal Commerce Protocol recognises submissions. Its business errors are 200, and kept. */
const universalIdempotency = {
  // At least 24 hours are asked for, 48 are recommended.
  retainMs: 48 * 3_600_000,
  maxBodyBytes: 1_048_576,
} as const;

/** Its answer to other content under a key. */
const reused = {
  code: "idempotency_conflict",
  content: "Idempotency key reused with different payload",
};

const rawBodies = new WeakMap<object, Uint8Array>();

/** In front of the guard: the parser, which keeps the bytes that the platform has signed. */
export const parseAndKeep: RequestHandler = express.json({
  verify: (req, _res, bytes) => void rawBodies.set(req, bytes),
});

/** Beside `lock` and `userId`, on Express, behind `parseAndKeep`. */
export const universal = {
  idempotency: { ...universalIdempotency, fingerprint: (req) => rawBodies.get(req) ?? "" },
  onMismatch: (_req, res) => void res.status(409).json(reused),
} satisfies Partial<SubmitGuardOptions>;

/** The same on Koa, behind `bodyParser()` of @koa/bodyparser, which keeps the text. */
export const universalOnKoa = {
  idempotency: {
    ...universalIdempotency,
    fingerprint: (ctx) => (ctx.request as { rawBody?: string }).rawBody ?? "",
  },
  onMismatch: (ctx) => {
    ctx.status = 409;
    ctx.body = reused;
  },
} satisfies Partial<KoaGuardOptions>;
