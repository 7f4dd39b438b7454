import { Readable } from "node:stream";
import type { FastifyInstance, FastifyReply, RouteHandlerMethod } from "fastify";
import { describe, expect, test } from "vitest";
import { openOrdersForTest, seenByClient } from "./fastify-orders.ts";

const theirs = () => new Error("theirs");

/** A hook that fails on the first answer alone. */
function failsOnce(): () => Promise<void> {
  let times = 0;
  return async () => {
    if (++times === 1) throw theirs();
  };
}

interface Failure {
  readonly name: string;
  /** What a retry gets: the handler again, the first answer, or a 409. */
  readonly retry: "runs" | "is repeated" | "is unavailable";
  readonly app?: (app: FastifyInstance) => void;
  readonly route?: object;
  readonly handler: RouteHandlerMethod;
}

const circle: Record<string, unknown> = {};
circle["itself"] = circle;
const required = { type: "object", properties: { a: { type: "number" } }, required: ["a"] };
// biome-ignore lint/suspicious/noThenProperty: thenables of the tests' own.
const withThen = (of: PropertyDescriptor) => Object.defineProperty({}, "then", of) as never;
const thenable = (value: (...settle: ((value: object) => void)[]) => void) => withThen({ value });
const streamOf = (members: object) => Object.assign(new Readable({ read() {} }), members);
const webFailing = () =>
  new ReadableStream({
    async pull() {
      await new Promise(setImmediate);
      throw theirs();
    },
  });
const errored = () => {
  const stream = new Readable({ read() {} });
  stream.on("error", () => {}).destroy(theirs());
  return stream;
};

const failures: readonly Failure[] = [
  {
    name: "the handler throws",
    retry: "runs",
    handler: () => {
      throw theirs();
    },
  },
  {
    name: "the handler rejects",
    retry: "runs",
    handler: async () => {
      throw theirs();
    },
  },
  { name: "the handler returns an error", retry: "runs", handler: async () => theirs() },
  {
    name: "the handler sends an error",
    retry: "runs",
    handler: async (_request, reply) => reply.send(theirs()),
  },
  {
    name: "a thenable throws",
    retry: "runs",
    handler: () =>
      thenable(() => {
        throw theirs();
      }),
  },
  {
    name: "a thenable cannot be read",
    retry: "runs",
    handler: () =>
      withThen({
        get: () => {
          throw theirs();
        },
      }),
  },
  {
    name: "a thenable resolves and rejects, twice each",
    retry: "is repeated",
    handler: () =>
      thenable((resolve, reject) => {
        for (const settle of [resolve, resolve, reject, reject]) settle?.({ a: 1 });
      }),
  },
  { name: "JSON.stringify of a BigInt", retry: "runs", handler: async () => ({ a: 1n }) },
  {
    name: "JSON.stringify of a circle that was sent",
    retry: "runs",
    handler: async (_request, reply) => reply.send(circle),
  },
  {
    name: "a schema that demands more",
    retry: "runs",
    route: { schema: { response: { 200: required } } },
    handler: async () => ({ b: 1 }),
  },
  {
    name: "a serializer of the handler's own",
    retry: "runs",
    handler: async (_request, reply) =>
      reply
        .serializer(() => {
          throw theirs();
        })
        .send({ a: 1 }),
  },
  {
    name: "a serializer of the handler's own, for a text",
    retry: "runs",
    handler: async (_request, reply) => {
      reply.type("text/csv").serializer((text) => {
        throw text === "a" ? theirs() : "again";
      });
      return "a";
    },
  },
  {
    name: "a serializer, and the error handler answers 200",
    retry: "is unavailable",
    app: (app) =>
      void app.setErrorHandler(async (_error, _request, reply) => reply.code(200).send({})),
    handler: async () => ({ a: 1n }),
  },
  {
    name: "a preSerialization hook that throws",
    retry: "runs",
    app: (app) =>
      void app.addHook("preSerialization", (_request, _reply, _payload, _done): void => {
        throw theirs();
      }),
    handler: async () => ({ a: 1 }),
  },
  {
    name: "a preSerialization hook that rejects later",
    retry: "runs",
    app: (app) =>
      void app.addHook("preSerialization", async () => {
        await new Promise(setImmediate);
        throw theirs();
      }),
    handler: async (_request, reply) => reply.send({ a: 1 }),
  },
  {
    name: "an onSend hook that throws",
    retry: "is repeated",
    app: (app) => {
      let times = 0;
      app.addHook("onSend", (_request, _reply, _payload, done) => {
        if (++times === 1) throw theirs();
        done();
      });
    },
    handler: async () => ({ a: 1 }),
  },
  {
    name: "an onSend hook that rejects",
    retry: "is repeated",
    app: (app) => void app.addHook("onSend", failsOnce()),
    handler: async (_request, reply) => reply.code(201).send({ a: 1 }),
  },
  {
    name: "an onSend hook that rejects, of an empty answer",
    retry: "is repeated",
    app: (app) => void app.addHook("onSend", failsOnce()),
    handler: async () => undefined,
  },
  {
    name: "an onSend hook, and the error handler answers 200",
    retry: "is repeated",
    app: (app) => {
      app.addHook("onSend", failsOnce());
      app.setErrorHandler(async (_error, _request, reply) =>
        reply.code(200).send({ failed: true }),
      );
    },
    handler: async () => ({ a: 1 }),
  },
  {
    name: "an object in a type that nobody serialises",
    retry: "runs",
    handler: async (_request, reply) => reply.type("application/xml").send({ a: 1 }),
  },
  {
    name: "a stream that is an error already",
    retry: "runs",
    handler: async (_request, reply) => reply.send(errored()),
  },
  {
    name: "a stream that fails before its first byte",
    retry: "runs",
    handler: async () =>
      Readable.from(
        (async function* () {
          await new Promise(setImmediate);
          if (circle["itself"]) throw theirs();
          yield "never";
        })(),
      ),
  },
  {
    name: "a web stream that fails before its first byte",
    retry: "runs",
    handler: async (_request, reply) => reply.code(201).send(webFailing()),
  },
  {
    name: "a Response that fails before its first byte",
    retry: "runs",
    handler: async () => new Response(webFailing(), { status: 201 }) as never,
  },
  {
    name: "a web stream, and the error handler answers 201",
    retry: "runs",
    app: (app) =>
      void app.setErrorHandler(async (_error, _request, reply) => reply.code(201).send({})),
    handler: async (_request, reply) => reply.code(201).send(webFailing()),
  },
  {
    name: "an onSend hook, of a web stream",
    retry: "is unavailable",
    app: (app) => void app.addHook("onSend", failsOnce()),
    handler: async () => new Blob(["placed"]).stream(),
  },
  {
    name: "something with a pipe that is no stream",
    retry: "runs",
    handler: async () => ({ pipe() {} }),
  },
  {
    name: "a stream whose listeners cannot be set",
    retry: "runs",
    handler: async () =>
      streamOf({
        on() {
          throw theirs();
        },
        once() {
          throw theirs();
        },
      }),
  },
  {
    name: "a Response whose body was read",
    retry: "runs",
    handler: async () => {
      const response = new Response("placed");
      await response.text();
      return response as never;
    },
  },
  {
    name: "a web stream that is locked",
    retry: "runs",
    handler: async () => {
      const stream = new Response("placed").body;
      stream?.getReader();
      return stream as never;
    },
  },
  {
    name: "reply.then",
    retry: "is repeated",
    app: (app) =>
      replies(app, (reply) => {
        // biome-ignore lint/suspicious/noThenProperty: Fastify's replies have one.
        reply.then = () => {
          throw theirs();
        };
      }),
    handler: async (_request, reply) => void reply.send({ a: 1 }),
  },
  {
    name: "reply.send, once",
    retry: "runs",
    app: (app) => {
      let times = 0;
      replies(app, (reply) => {
        const { send } = reply;
        reply.send = (payload) => {
          if (++times === 1) throw theirs();
          return send.call(reply, payload);
        };
      });
    },
    handler: async () => ({ a: 1 }),
  },
  {
    name: "reply.getHeaders, once",
    retry: "is unavailable",
    app: (app) => {
      let times = 0;
      replies(app, (reply) => {
        const { getHeaders } = reply;
        reply.getHeaders = () => {
          if (++times === 1) throw theirs();
          return getHeaders.call(reply);
        };
      });
    },
    handler: async () => ({ a: 1 }),
  },
  {
    name: "a payload and then an error",
    retry: "is repeated",
    handler: async (_request, reply) => {
      void reply.send({ a: 1 });
      throw theirs();
    },
  },
];

/** Changes each reply before the handler runs. */
function replies(app: FastifyInstance, change: (reply: FastifyReply) => void): void {
  app.addHook("preHandler", async (_request, reply) => change(reply));
}

describe("what fails is what fails without a guard, and the user is free:", () => {
  test.each(failures)("$name", async ({ app, route, handler, retry }) => {
    const answers: unknown[] = [];
    for (const bare of [true, false]) {
      let runs = 0;
      const { whenFree, place, records, submit, ...orders } = openOrdersForTest({ bare });
      app?.(orders.app);
      place(function (this: FastifyInstance, request, reply) {
        runs++;
        return handler.call(this, request, reply);
      }, route);
      answers.push(seenByClient(await submit()));
      if (bare) continue;
      await whenFree();
      expect(await records()).toHaveLength(retry === "runs" ? 0 : 1);
      const second = await submit();
      expect(runs).toBe(retry === "runs" ? 2 : 1);
      const { "idempotent-replayed": replayed } = second.headers;
      expect(replayed).toBe(retry === "is repeated" ? "true" : undefined);
      if (retry === "is unavailable") {
        expect(second.json().code).toBe("idempotency_answer_unavailable");
      }
      await whenFree();
    }
    expect(answers[1]).toEqual(answers[0]);
  });
});
