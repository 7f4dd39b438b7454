import { Readable } from "node:stream";
import type { Framework } from "../../../http/frameworks.ts";
import type { Layer } from "../../../http/turn.ts";
import type { Fault, Way } from "./fault.ts";
import { acting, type Site, thrown } from "./site.ts";

/** Around the guard, before anything else has the response. */
function aroundResponse(touch: (fault: Fault) => Layer): Pick<Site, "parts"> {
  return { parts: (fault) => ({ outside: [touch(fault)] }) };
}

const nodeMethods = ["end", "write", "writeHead", "setHeader", "flushHeaders", "getHeader"];
const moreNodeMethods = ["getHeaderNames", "getHeaders", "removeHeader", "on", "once", "emit"];
const replyMethods = ["send", "code", "status", "header", "headers", "getHeader", "getHeaders"];
const moreReplyMethods = ["type", "hijack", "then", "removeHeader"];

const never: Layer["express"] = () => {
  throw new Error("a layer of another framework");
};

const onResponse =
  (names: readonly string[]) =>
  (fault: Fault): Layer => {
    const touch = (res: object) => fault.inMethods(res, names);
    return {
      express: () => (_req, res, next) => {
        touch(res);
        next();
      },
      koa: () => async (ctx, next) => {
        touch(ctx.res);
        await next();
      },
      fastify(app, handler) {
        app.addHook("preHandler", async (_request, reply) => touch(reply.raw));
        return handler;
      },
    };
  };

const onReply =
  (names: readonly string[]) =>
  (fault: Fault): Layer => ({
    express: never,
    koa: never as never,
    fastify(app, handler) {
      app.addHook("preHandler", async (_request, reply) => fault.inMethods(reply, names));
      return handler;
    },
  });

const onContext =
  (of: "response" | "state", names: readonly string[]) =>
  (fault: Fault): Layer => ({
    express: never,
    koa: () => async (ctx, next) => {
      fault.inMembers(ctx[of], names);
      await next();
    },
  });

const responseWays: readonly Way[] = ["throws", "never settles", "acts twice"];
const asBare = (runsOn: (framework: Framework) => boolean, more: Partial<Site>): Site => ({
  ways: responseWays,
  outcome: () => "bare",
  runsOn,
  isInside: true,
  ...more,
});
const onNode = ({ family }: Framework) => family !== "fetch";
const on = (family: Framework["family"]) => (framework: Framework) => framework.family === family;

const ofNode: Record<string, Site> = {
  ...Object.fromEntries(
    [...nodeMethods, ...moreNodeMethods].map((name) => [
      `res.${name}`,
      asBare(onNode, aroundResponse(onResponse([name]))),
    ]),
  ),
  ...Object.fromEntries(
    [...replyMethods, ...moreReplyMethods].map((name) => [
      `reply.${name}`,
      asBare(on("fastify"), aroundResponse(onReply([name]))),
    ]),
  ),
  ...Object.fromEntries(
    ["body", "status", "type", "message", "headers"].map((name) => [
      `ctx.${name}`,
      asBare(on("koa"), { ways: thrown, ...aroundResponse(onContext("response", [name])) }),
    ]),
  ),
  "ctx.state": asBare(on("koa"), {
    ways: thrown,
    ...aroundResponse(onContext("state", ["submitLease", "submission"])),
  }),
  "req.submitLease": asBare(({ family }) => family === "express" || family === "fastify", {
    ways: thrown,
    ...aroundResponse((fault) => ({
      express: () => (req, _res, next) => {
        fault.inMembers(req, ["submitLease", "submission"]);
        next();
      },
      koa: never as never,
      fastify(app, handler) {
        app.addHook("preHandler", async (request) =>
          fault.inMembers(request, ["submitLease", "submission"]),
        );
        return handler;
      },
    })),
  }),
  "an answer's toJSON": asBare(() => true, {
    ways: thrown,
    handler: (turn, fault) => turn.answer(201, { toJSON: fault.in(() => ({ order: "placed" })) }),
  }),
  "a stream's read": asBare(() => true, {
    // A generator that never returns may still write the order.
    isUnseen: true,
    ways: acting,
    handler: (turn, fault) => turn.stream(Readable.from(chunks(fault))),
  }),
  "a stream's destroy": asBare(onNode, {
    isUnseen: true,
    ways: ["throws", "never settles", "acts twice"],
    handler: (turn, fault) => {
      const source = Readable.from(["placed"]);
      const destroy = source._destroy.bind(source);
      source._destroy = fault.in((error, done) => destroy(error, done));
      return turn.stream(source);
    },
  }),
  ...Object.fromEntries(
    ["onSend", "preSerialization"].map((hook) => [
      `the hook ${hook}`,
      asBare(on("fastify"), {
        ways: acting,
        parts: (fault) => ({
          outside: [
            {
              express: never,
              koa: never as never,
              fastify(app, handler) {
                const pass = fault.in(async (payload: unknown) => payload);
                app.addHook(hook as "onSend", async (_request, _reply, payload) => pass(payload));
                return handler;
              },
            },
          ],
        }),
      }),
    ]),
  ),
  "middleware inside": asBare(({ family }) => family === "express" || family === "koa", {
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

/** What a handler of fetch may return, and what it may do with it. */
const returned: Readonly<Record<string, (fault: Fault) => unknown>> = {
  "a stream's pull": (fault) => {
    let left = 3;
    const pull = fault.in((controller: ReadableStreamDefaultController) => {
      if (left-- > 0) controller.enqueue(new Uint8Array([65]));
      else controller.close();
    });
    return new Response(new ReadableStream({ pull }), { status: 201 });
  },
  "a stream's start": (fault) => {
    const start = fault.in((controller: ReadableStreamDefaultController) => {
      controller.enqueue(new Uint8Array([65]));
      controller.close();
    });
    return new Response(new ReadableStream({ start }), { status: 201 });
  },
  "a stream's cancel": (fault) =>
    new Response(
      new ReadableStream({
        start: (controller) => controller.enqueue(new Uint8Array([65])),
        cancel: fault.in(() => {}),
      }),
      { status: 201 },
    ),
  "a reader's read": (fault) => {
    const response = new Response("placed", { status: 201 });
    const { body } = response;
    const reader = body?.getReader() as ReadableStreamDefaultReader;
    fault.inMethods(reader, ["read", "cancel", "releaseLock"]);
    Object.defineProperty(body, "locked", { value: false });
    Object.defineProperty(body, "getReader", { value: fault.in(() => reader) });
    return response;
  },
  "a response's members": (fault) => {
    const response = new Response("placed", { status: 201 });
    fault.inMembers(response, ["body", "status", "headers"]);
    return response;
  },
  "a response's headers": (fault) => {
    const response = new Response("placed", { status: 201 });
    fault.inMethods(response.headers, ["get", "forEach", "entries", "has"]);
    const iterate = response.headers[Symbol.iterator].bind(response.headers);
    Object.defineProperty(response.headers, Symbol.iterator, { value: fault.in(iterate) });
    return response;
  },
};

/** Answers that are odd by themselves. */
const odd: Readonly<Record<string, () => unknown>> = {
  "a stream of texts": () => streamOf("placed"),
  "a stream of null": () => streamOf(null),
  "a stream of objects": () => streamOf({}),
  "a stream of an ArrayBuffer": () => streamOf(new ArrayBuffer(3)),
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
  null: () => null,
};

function streamOf(...parts: unknown[]): Response {
  const start = (controller: ReadableStreamDefaultController) => {
    for (const part of parts) controller.enqueue(part);
    controller.close();
  };
  return new Response(new ReadableStream({ start }), { status: 201 });
}

const ofFetch: Record<string, Site> = {
  ...Object.fromEntries(
    Object.entries(returned).map(([name, make]) => [
      name,
      asBare(on("fetch"), {
        ways: acting,
        // A stream whose cancel never settles may still write the order.
        ...(name === "a stream's cancel" && { isUnseen: true as const }),
        handler: (turn, fault) => turn.hono?.respond(make(fault) as Response),
      }),
    ]),
  ),
  ...Object.fromEntries(
    Object.entries(odd).map(([name, make]) => [
      name,
      asBare(on("fetch"), {
        ways: thrown,
        handler(turn, fault) {
          fault.hasStruck = true;
          turn.hono?.respond(make() as Response);
        },
      }),
    ]),
  ),
};

/** What sends the answer, in the handler's hands and in the guard's. */
export const responseSites: Readonly<Record<string, Site>> = { ...ofNode, ...ofFetch };
