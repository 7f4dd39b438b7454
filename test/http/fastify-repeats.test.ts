import { Readable } from "node:stream";
import type {
  FastifyInstance,
  FastifyReply,
  RouteHandlerMethod,
  RouteShorthandOptions,
} from "fastify";
import { describe, expect, test } from "vitest";
import { openOrdersForTest, seenByClient } from "./fastify-orders.ts";
import { gate } from "./gate.ts";

// The usual ways to answer and to fail, and the usual hooks, are programs of the nets.

interface Row {
  readonly name: string;
  readonly app?: (app: FastifyInstance) => void;
  readonly route?: RouteShorthandOptions;
  readonly handler: RouteHandlerMethod;
  /**
   * What a retry gets: the handler again, a 409, or the answer that its hooks have lost.
   * @defaultValue the first answer
   */
  readonly retry?: "runs" | "unavailable" | "the answer that was lost";
}

const value: RouteHandlerMethod = async () => ({ a: 1, hidden: 2 });
const theirs = () => new Error("theirs");
const fail = () => {
  throw theirs();
};

const onlyA = { type: "object", properties: { a: { type: "number" } } };
const responding = (response: object): RouteShorthandOptions => ({ schema: { response } });
const byType = (schemas: Record<string, object>) =>
  responding({
    200: {
      description: "by type",
      content: Object.fromEntries(
        Object.entries(schemas).map(([type, schema]) => [type, { schema }]),
      ),
    },
  });

/** Changes each reply before the handler runs. */
const replies = (change: (reply: FastifyReply) => unknown) => (app: FastifyInstance) =>
  void app.addHook("preHandler", async (_request, reply) => void change(reply));

/** A hook that fails on the first answer alone. */
function failsOnce(app: FastifyInstance): void {
  let times = 0;
  app.addHook("onSend", async () => {
    if (++times === 1) fail();
  });
}

/** A method of each reply that fails when it is called for the first time. */
const failsOnceIn =
  (name: "send" | "getHeaders", at = 1) =>
  (app: FastifyInstance) => {
    let times = 0;
    replies((reply) => {
      const method = reply[name] as (...args: unknown[]) => never;
      reply[name] = (...args: unknown[]) =>
        ++times === at ? (fail() as never) : Reflect.apply(method, reply, args);
    })(app);
  };

const answers: readonly Row[] = [
  {
    name: "a JSON text under a schema",
    route: responding({ 200: onlyA }),
    handler: async (_request, reply) => reply.type("application/json").send('{"a":1,"extra":2}'),
  },
  {
    name: "a value that a hook without a promise wraps",
    app: (app) =>
      void app.addHook("preSerialization", (_request, _reply, payload, done) =>
        done(null, { data: payload }),
      ),
    handler: value,
  },
  {
    name: "a schema of all 2xx",
    route: responding({ "2xx": onlyA }),
    handler: async (_request, reply) => reply.code(201).send({ a: 1, hidden: 2 }),
  },
  {
    name: "a schema of a content type that the handler sets",
    route: byType({ "application/json": {}, "application/vnd.v2+json": onlyA }),
    handler: async (_request, reply) =>
      reply.type("application/vnd.v2+json").send({ a: 1, hidden: 2 }),
  },
  { name: "a schema of any content type", route: byType({ "*/*": onlyA }), handler: value },
  {
    name: "a serializer of the handler's own, for a text",
    handler: async (_request, reply) =>
      reply
        .type("text/csv")
        .serializer((text: string) => `"${text}"`)
        .send("a"),
  },
  {
    name: "a JSON type without a charset, of a serializer that a hook has set",
    app: replies((reply) =>
      reply.type("application/json").serializer((given: object) => JSON.stringify([given])),
    ),
    handler: value,
  },
  {
    name: "a serializer that makes bytes",
    handler: async (_request, reply) =>
      reply
        .type("application/x-protobuf")
        .serializer((() => Buffer.from([8, 150, 1, 255])) as never)
        .send({ a: 1 }),
  },
  {
    name: "the application's serializer before a schema by content type",
    app: (app) =>
      void app.setReplySerializer((payload, status) => JSON.stringify([payload, status])),
    route: byType({ "application/json": onlyA }),
    handler: value,
  },
  {
    name: "a compiler of serializers",
    route: {
      ...responding({ 200: onlyA }),
      serializerCompiler: () => (given) => `[${JSON.stringify(given)}]`,
    },
    handler: value,
  },
  {
    name: "reply.serializeInput",
    route: responding({ 200: onlyA }),
    handler: async (_request, reply) =>
      reply.type("application/json").send(reply.serializeInput({ a: 1, hidden: 2 }, "200")),
  },
  { name: "a typed array", handler: async () => new Uint16Array([1, 2, 65_535]).subarray(1) },
  {
    name: "a Response without a body",
    handler: async () => new Response(null, { status: 202, headers: { etag: "7" } }) as never,
  },
  {
    name: "null in a type",
    handler: async (_request, reply) => reply.type("text/plain").send(null),
  },
  {
    name: "bytes, which an onSend hook sees as bytes",
    app: (app) =>
      void app.addHook(
        "onSend",
        async (_request, _reply, payload) => `${Buffer.isBuffer(payload)}`,
      ),
    handler: async () => Buffer.from("placed"),
  },
  {
    name: "an onSend hook of the route, and an answer behind early hints",
    route: { onSend: async (_request, _reply, payload) => `${payload} ` },
    handler: async (_request, reply) => {
      reply.writeEarlyHints({ link: "</style.css>; rel=preload" }, () => {});
      return { a: 1 };
    },
  },
];

// biome-ignore lint/suspicious/noThenProperty: thenables of the tests' own.
const withThen = (of: PropertyDescriptor) => Object.defineProperty({}, "then", of) as never;
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

const failures: readonly Row[] = [
  { name: "a handler that returns an error", retry: "runs", handler: async () => theirs() },
  {
    name: "a thenable that throws",
    retry: "runs",
    handler: () => withThen({ value: fail }),
  },
  { name: "a thenable that cannot be read", retry: "runs", handler: () => withThen({ get: fail }) },
  {
    name: "a thenable that resolves and rejects, twice each",
    handler: () =>
      withThen({
        value: (resolve: (value: object) => void, reject: typeof resolve) => {
          for (const settle of [resolve, resolve, reject, reject]) settle({ a: 1 });
        },
      }),
  },
  {
    name: "a schema that demands more",
    retry: "unavailable",
    route: responding({ 200: { ...onlyA, required: ["a"] } }),
    handler: async () => ({ b: 1 }),
  },
  {
    name: "a serializer of the handler's own, for a text",
    retry: "unavailable",
    handler: async (_request, reply) => {
      reply.type("text/csv").serializer((text) => {
        throw text === "a" ? theirs() : "again";
      });
      return "a";
    },
  },
  {
    name: "a serializer, and the error handler answers 200",
    retry: "unavailable",
    app: (app) =>
      void app.setErrorHandler(async (_error, _request, reply) => reply.code(200).send({})),
    handler: async () => ({ a: 1n }),
  },
  {
    name: "an onSend hook that rejects, of an empty answer",
    retry: "the answer that was lost",
    app: failsOnce,
    handler: async () => undefined,
  },
  {
    name: "an onSend hook, and the error handler answers 200",
    retry: "the answer that was lost",
    app: (app) => {
      failsOnce(app);
      app.setErrorHandler(async (_error, _request, reply) =>
        reply.code(200).send({ failed: true }),
      );
    },
    handler: value,
  },
  {
    name: "an object in a type that nobody serialises",
    retry: "unavailable",
    handler: async (_request, reply) => reply.type("application/xml").send({ a: 1 }),
  },
  {
    name: "a Location that Node does not send",
    retry: "unavailable",
    handler: async (_request, reply) => reply.redirect("/заказ", 303),
  },
  {
    name: "a stream that is an error already",
    retry: "runs",
    handler: async (_request, reply) => reply.send(errored()),
  },
  {
    name: "a stream whose listeners cannot be set",
    retry: "runs",
    handler: async () => Object.assign(new Readable({ read() {} }), { on: fail, once: fail }),
  },
  {
    name: "a Response whose body was read",
    retry: "unavailable",
    handler: async () => {
      const response = new Response("placed");
      await response.text();
      return response as never;
    },
  },
  {
    name: "a web stream that is locked",
    retry: "unavailable",
    handler: async () => {
      const stream = new Response("placed").body;
      stream?.getReader();
      return stream as never;
    },
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
    retry: "unavailable",
    app: failsOnce,
    handler: async () => new Blob(["placed"]).stream(),
  },
  {
    name: "reply.then",
    app: replies((reply) => Object.assign(reply, withThen({ value: fail, enumerable: true }))),
    handler: async (_request, reply) => void reply.send({ a: 1 }),
  },
  { name: "reply.send, once", retry: "unavailable", app: failsOnceIn("send"), handler: value },
  {
    name: "reply.getHeaders, once",
    retry: "unavailable",
    // The guard reads them before the handler, too.
    app: failsOnceIn("getHeaders", 2),
    handler: value,
  },
  {
    name: "a payload and then an error",
    handler: async (_request, reply) => {
      void reply.send({ a: 1 });
      throw theirs();
    },
  },
];

describe.each([
  { what: "an answer", rows: answers },
  { what: "a failure", rows: failures },
])("$what is what it is without a guard, and the user is free:", ({ rows, what }) => {
  test.each(rows)("$name", async ({ app, route, handler, retry }) => {
    const seen: unknown[] = [];
    const sent: unknown[] = [];
    for (const bare of [true, false]) {
      let runs = 0;
      const { whenFree, place, records, submit, ...orders } = openOrdersForTest({ bare });
      // A failure may come before the payload has passed such a hook.
      if (what === "an answer") {
        orders.app.addHook("onSend", async (_request, _reply, payload) => {
          sent.push(payload instanceof Response ? undefined : payload?.toString());
        });
      }
      app?.(orders.app);
      place(function (this: FastifyInstance, request, reply) {
        runs++;
        return handler.call(this, request, reply);
      }, route);
      seen.push(seenByClient(await submit()));
      if (bare) continue;
      await whenFree();
      expect(await records()).toHaveLength(retry === "runs" ? 0 : 1);
      const second = await submit();
      expect(runs).toBe(retry === "runs" ? 2 : 1);
      const isReplay = second.headers["idempotent-replayed"] === "true";
      expect(isReplay).toBe(retry === undefined || retry === "the answer that was lost");
      if (retry === "unavailable") {
        expect(second.json().code).toBe("idempotency_answer_unavailable");
      }
      if (retry === undefined) expect(seenByClient(second)).toEqual(seen[0]);
      await whenFree();
    }
    expect(seen[1]).toEqual(seen[0]);
    // The first hook is given the same, of a body at least.
    if (sent[0]) expect(sent.slice(1)).toEqual([sent[0], sent[0]]);
  });
});

test("what a schema or preSerialization hides is nowhere in Redis", async () => {
  const account = {
    id: 7,
    passwordHash: "$argon2id$v=19",
    card: { number: "4000 0000 0000 0002" },
  };
  for (const hides of ["schema", "preSerialization"]) {
    const { app, place, records, twice } = openOrdersForTest();
    if (hides === "preSerialization") {
      app.addHook("preSerialization", async (_request, _reply, payload) => ({
        id: Object(payload).id,
      }));
    }
    const id = { type: "object", properties: { id: { type: "number" } } };
    place(async () => account, hides === "schema" ? { schema: { response: { 200: id } } } : {});
    const [first, second] = await twice();
    expect([first.body, second.body]).toEqual(['{"id":7}', '{"id":7}']);
    expect(second.headers["idempotent-replayed"]).toBe("true");
    expect((await records()).join()).toMatch(/\}\{"id":7\}$/);
    expect((await records()).join()).not.toMatch(/passwordHash|argon|card|4000 0000/);
  }
});

test.each<[string, RouteHandlerMethod]>([
  ["a stream", async () => Readable.from(["a", "b"])],
  ["a web stream", async () => new Blob(["ab"]).stream()],
  ["a Response", async () => new Response("ab")],
  ["a body beyond maxBodyBytes", async () => "x".repeat(65_537)],
  [
    "a value that an onSend hook makes a text of",
    async (_request, reply) => reply.type("application/xml").send({ toText: "<a/>" }),
  ],
])("the body of %s is not kept: a retry is told so, and runs nothing", async (_what, handler) => {
  const { app, place, twice, whenFree } = openOrdersForTest();
  let runs = 0;
  app.addHook("onSend", async (_request, _reply, payload) => Object(payload).toText ?? payload);
  place(function (this: FastifyInstance, request, reply) {
    runs++;
    return handler.call(this, request, reply);
  });
  const [first, second] = await twice();
  expect([first.statusCode, second.statusCode, runs]).toEqual([200, 409, 1]);
  expect(second.json().code).toBe("idempotency_answer_unavailable");
  await whenFree();
});

test("a client that leaves while its answer is serialised has an order, and a retry is told so", async () => {
  const { app, place, submit, user, whenFree } = openOrdersForTest({
    app: { forceCloseConnections: true },
  });
  const [begun, over] = [gate(), gate()];
  let runs = 0;
  app.addHook("preSerialization", async (_request, _reply, payload) => {
    begun.open();
    await over.opened;
    return payload;
  });
  place(async (_request, reply) => reply.code(201).send({ run: ++runs }));
  const url = await app.listen({ port: 0, host: "127.0.0.1" });
  const left = new AbortController();
  const headers = {
    "x-user": user,
    "idempotency-key": "a-key",
    "content-type": "application/json",
  };
  const { signal } = left;
  const click = fetch(`${url}/orders`, { method: "POST", headers, body: '{"cart":7}', signal });
  await begun.opened;
  left.abort();
  await expect(click).rejects.toThrow();
  // Hooks have one second.
  await whenFree();
  expect((await submit()).json().code).toBe("idempotency_answer_unavailable");
  over.open();
  expect(runs).toBe(1);
});
