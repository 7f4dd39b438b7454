import type { IncomingMessage, ServerResponse } from "node:http";
import type { Readable } from "node:stream";
import type { Request, RequestHandler, Response } from "express";
import type { FastifyInstance, FastifyReply, RouteHandler } from "fastify";
import type { Context as HonoContext, MiddlewareHandler } from "hono";
import type { Context, Middleware } from "koa";
import type {
  IdempotencyOptions,
  RequestSubmission,
  SubmitGuardOptions,
} from "../../src/express/index.ts";
import type { Lease } from "../../src/index.ts";

/** One run of the order handler, in the same words on every framework. */
export interface Turn {
  readonly req: IncomingMessage;
  readonly res: ServerResponse;
  readonly lease: Lease | undefined;
  /** Where it has put the submission. */
  readonly submission: RequestSubmission | undefined;
  /** What the parser has made of the body. */
  readonly parsed: unknown;
  /** For a handler that answers in a way that only Express has. */
  readonly express: { readonly req: Request; readonly res: Response } | undefined;
  /** The same for Koa. */
  readonly ctx: Context | undefined;
  readonly reply: FastifyReply | undefined;
  /** The same for Hono, whose handlers return a response. */
  readonly hono:
    | { readonly c: HonoContext; respond(response: globalThis.Response): void }
    | undefined;
  /** Answers as the framework's users do. */
  answer(status: number, body: object | string | null, type?: string): void;
  /** A stream as the body: `pipeline` on Express, `ctx.body` on Koa, what is sent elsewhere. */
  stream(source: Readable | ReadableStream): Promise<void> | undefined;
  /** The bare response, for a handler that answers by hand. */
  byHand(): ServerResponse;
  /** Passes an error on: `next(error)` on Express, a throw elsewhere. */
  fail(error: Error): void;
}

/** A middleware that exists for Express and Koa, and perhaps elsewhere. */
export interface Layer {
  /** For Fastify and fetch, where the layer needs nothing but Node's request and response. */
  node?(req: IncomingMessage, res: ServerResponse): Promise<void>;
  /** Adds hooks, or returns another handler. */
  fastify?(app: FastifyInstance, handler: RouteHandler): RouteHandler;
  hono?(): MiddlewareHandler;
  express(): RequestHandler;
  koa(): Middleware;
}

/** The options of a guard that both adapters understand, with callbacks on Node's request. */
interface GuardChoices {
  skip?: (req: IncomingMessage) => boolean | Promise<boolean>;
  onAnonymous?: "reject" | "proceed";
  onUnavailable?: "reject" | "proceed";
  userId?: (req: IncomingMessage) => unknown;
  idempotency?: IdempotencyOptions<IncomingMessage>;
  cooldownMs?: number;
}

/** Why a request did not run, as the answer functions of both adapters are told. */
export interface Told {
  readonly reason: string;
  readonly [name: string]: unknown;
}

type AnswerName =
  | "onAnonymous"
  | "onContended"
  | "onUnavailable"
  | "onKeyMissing"
  | "onMismatch"
  | "onReplay";

export type Family = "express" | "koa" | "fastify" | "fetch";

/** What an application is made of, whatever its framework. */
export interface AppParts {
  /** Without one, the same application unprotected. */
  lock: SubmitGuardOptions["lock"] | undefined;
  handler: (turn: Turn) => unknown;
  guard?: GuardChoices;
  /** The application's own answers: a status, and a body as JSON. */
  answers?: Partial<Record<AnswerName, (told: Told) => readonly [number, object]>>;
  /** More options of the guard, in each framework's own words. */
  recipe?: Readonly<Record<Family, object>>;
  /** @defaultValue {@link orderPaths} */
  paths?: readonly string[];
  /** No parser stands before the guard. */
  unparsed?: boolean;
  /** Around the guard. */
  outside?: readonly Layer[];
  /** Between the guard and the handler. */
  inside?: readonly Layer[];
  /** Receives what came to the error handler. */
  onError?: (error: unknown) => void;
  /** What the error handler waits for before it answers. */
  beforeErrorAnswer?: () => Promise<void>;
}

type Answer = NonNullable<NonNullable<AppParts["answers"]>[AnswerName]>;

/** The application's answer functions, made for its framework. */
export function answersOf({ answers = {} }: AppParts, made: (answer: Answer) => unknown): object {
  return Object.fromEntries(Object.entries(answers).map(([name, answer]) => [name, made(answer)]));
}

/** Where the order handler is. */
export const orderPaths: readonly string[] = ["/orders", "/refunds"];

/** Whose request it is, in every test. */
export function userOf(req: IncomingMessage): string | undefined {
  return req.headers["x-user"]?.toString();
}
