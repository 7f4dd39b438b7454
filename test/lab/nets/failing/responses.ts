import { Readable } from "node:stream";
import type { FastifyReply, FastifyRequest } from "fastify";
import type { Context } from "koa";
import type { Framework } from "../../../http/frameworks.ts";
import type { AppParts, Layer } from "../../../http/turn.ts";
import type { Fault } from "./fault.ts";
import { acting, awaited, named, type Site, thrown } from "./site.ts";

const on =
  (...families: Framework["family"][]) =>
  ({ family }: Framework) =>
    families.includes(family);
const onNode = on("express", "koa", "fastify");

const asBare = (more: Partial<Site>): Site => ({
  ways: ["throws", "never settles", "acts twice"],
  outcome: () => "bare",
  isInside: true,
  ...more,
});

/**
 * Members that the guard reads, and that a bare application may not read: a fault that the second
 * look does not meet is only the guard's, and an answer that it cannot read is not kept.
 */
const read: Partial<Site> = { ways: thrown, outcome: () => "any", mayRunAgain: true };

/** The objects of one request. */
interface Objects {
  readonly req: object;
  readonly res: object;
  readonly ctx?: Context;
  readonly request?: FastifyRequest;
  readonly reply?: FastifyReply;
}

/** Changes the objects before the guard gets them. */
const changing = (change: (objects: Objects, fault: Fault) => void) => ({
  parts: (fault: Fault): Partial<AppParts> => ({
    outside: [
      {
        express: () => (req, res, next) => {
          change({ req, res }, fault);
          next();
        },
        koa: () => async (ctx, next) => {
          change({ req: ctx.req, res: ctx.res, ctx }, fault);
          await next();
        },
        fastify(app, handler) {
          app.addHook("preHandler", async (request, reply) =>
            change({ req: request.raw, res: reply.raw, request, reply }, fault),
          );
          return handler;
        },
      },
    ],
  }),
});

const streamed: Partial<Site> = { handler: (turn) => turn.stream(Readable.from(["a", "b"])) };

const onHead: Partial<Site> = { runsOn: on("express", "koa") };

const inResponse = (more: Partial<Site>, name: string) =>
  asBare({
    runsOn: onNode,
    ...changing(({ res }, fault) => fault.inMethods(res, [name])),
    ...more,
  });
const inReply = (more: Partial<Site>, name: string) =>
  asBare({
    runsOn: on("fastify"),
    ...changing(({ reply }, fault) => fault.inMethods(reply as FastifyReply, [name])),
    ...more,
  });
const inContext = (more: Partial<Site>, name: string) =>
  asBare({
    runsOn: on("koa"),
    ways: thrown,
    mayRunAgain: true,
    ...changing(({ ctx }, fault) => fault.inMembers((ctx as Context).response, [name])),
    ...more,
  });

const inHook = (_more: object, hook: string) =>
  asBare({
    runsOn: on("fastify"),
    ways: awaited,
    parts: (fault) => ({
      outside: [
        {
          ...nowhere,
          fastify(app, handler) {
            const pass = fault.in(async (payload: unknown) => payload);
            app.addHook(hook as "onSend", async (_request, _reply, payload) => pass(payload));
            return handler;
          },
        },
      ],
    }),
  });

const never = () => {
  throw new Error("a layer of another framework");
};
const nowhere: Layer = { express: never, koa: never };

const ofNode: Readonly<Record<string, Site>> = {
  ...named({ end: {}, write: streamed, writeHead: {} }, (name) => `res.${name}`, inResponse),
  ...named(
    { setHeader: onHead, getHeaderNames: { ...read, ...onHead } },
    (name) => `res.${name}`,
    inResponse,
  ),
  ...named({ send: {}, code: {} }, (name) => `reply.${name}`, inReply),
  ...named({ getHeader: read, getHeaders: read }, (name) => `reply.${name}`, inReply),
  ...named({ body: {}, status: {}, type: {} }, (name) => `ctx.${name}`, inContext),
  ...named({ onSend: {}, preSerialization: {} }, (name) => `the hook ${name}`, inHook),
  "where the lease is put": {
    ways: thrown,
    outcome: () => "any",
    runsOn: onNode,
    ...changing(({ ctx, req, request }, fault) =>
      fault.inMembers(ctx?.state ?? request ?? req, ["submitLease", "submission"]),
    ),
  },
  "an answer's toJSON": asBare({
    ...read,
    handler: (turn, fault) => turn.answer(201, { toJSON: fault.in(() => ({ order: "placed" })) }),
  }),
  "a stream's read": asBare({
    ways: acting,
    // A generator that never returns may still write the order.
    isUnseen: true,
    handler: (turn, fault) => turn.stream(Readable.from(chunks(fault))),
  }),
  "a stream's destroy": asBare({
    runsOn: onNode,
    isUnseen: true,
    handler: (turn, fault) => {
      const source = Readable.from(["placed"]);
      fault.inMethods(source, ["_destroy"]);
      return turn.stream(source);
    },
  }),
  "middleware inside": asBare({
    runsOn: on("express", "koa"),
    isInside: false,
    isUnseen: true,
    ways: acting,
    parts: (fault) => ({
      inside: [
        {
          express: () => (_req, _res, next) => fault.in(() => next())(),
          koa: () => async (_ctx, next) => await fault.in(() => next())(),
        },
      ],
    }),
  }),
};

async function* chunks(fault: Fault): AsyncGenerator<string> {
  const next = fault.in(() => "placed");
  for (let i = 0; i < 4; i++) yield await next();
}

type Controller = ReadableStreamDefaultController<unknown>;

const ofSource = (source: object) => new Response(new ReadableStream(source), { status: 201 });

const said = (...parts: unknown[]) => ({
  start(controller: Controller) {
    for (const part of parts) controller.enqueue(part);
    controller.close();
  },
});

/** What a handler of fetch returns, and what in it may fail. */
const ofFetch: Readonly<Record<string, (fault: Fault) => unknown>> = {
  "a stream's pull": (fault) => {
    let left = 3;
    const pull = (controller: Controller) => {
      if (left-- > 0) controller.enqueue(new Uint8Array([65]));
      else controller.close();
    };
    return ofSource({ pull: fault.in(pull) });
  },
  "a stream's start": (fault) => ofSource({ start: fault.in(said(new Uint8Array([65])).start) }),
  "a stream's cancel": (fault) => {
    const start = (controller: Controller) => controller.enqueue(new Uint8Array([65]));
    return ofSource({ start, cancel: fault.in(() => {}) });
  },
};

/** Members of what it returns, which the guard reads first. */
const readOfFetch: typeof ofFetch = {
  "a response's members": (fault) => {
    const response = new Response("placed", { status: 201 });
    fault.inMembers(response, ["body", "status", "headers", "bodyUsed"]);
    return response;
  },
  "a response's headers": (fault) => {
    const response = new Response("placed", { status: 201 });
    const iterate = response.headers[Symbol.iterator].bind(response.headers);
    Object.defineProperty(response.headers, Symbol.iterator, { value: fault.in(iterate) });
    fault.inMethods(response.headers, ["get", "forEach", "entries"]);
    return response;
  },
  "a reader": (fault) => {
    const response = new Response("placed", { status: 201 });
    const { body } = response;
    const reader = body?.getReader() as ReadableStreamDefaultReader;
    fault.inMethods(reader, ["read", "cancel"]);
    Object.defineProperty(body, "locked", { value: false });
    Object.defineProperty(body, "getReader", { value: fault.in(() => reader) });
    return response;
  },
};

/** Answers that are odd by themselves. */
const oddOfFetch: typeof ofFetch = {
  "a stream of texts": () => ofSource(said("placed")),
  "a stream of objects": () => ofSource(said({})),
  "a stream of an ArrayBuffer": () => ofSource(said(new ArrayBuffer(3))),
  "a body that was read": () => {
    const response = new Response("placed", { status: 201 });
    void response.text();
    return response;
  },
  "a body with a reader": () => {
    const response = new Response("placed", { status: 201 });
    response.body?.getReader();
    return response;
  },
  "Response.error()": () => Response.error(),
  "a response of another library": () => ({ status: 201, headers: new Headers(), body: "placed" }),
  "a number": () => 201,
  nothing: () => null,
};

const returning = (more: Partial<Site>) => (make: (fault: Fault) => unknown) =>
  asBare({
    runsOn: on("fetch"),
    ways: acting,
    handler: (turn, fault) => turn.hono?.respond(make(fault) as Response),
    ...more,
  });

/** What sends the answer, in the handler's hands and in the guard's. */
export const responseSites: Readonly<Record<string, Site>> = {
  ...ofNode,
  ...named(ofFetch, (name) => name, returning({ isUnseen: true })),
  ...named(readOfFetch, (name) => name, returning(read)),
  ...named(
    oddOfFetch,
    (name) => name,
    (make) =>
      returning({ ways: thrown })((fault) => {
        fault.hasStruck = true;
        return make(fault);
      }),
  ),
};
