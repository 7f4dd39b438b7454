import { Readable } from "node:stream";
import type { FastifyInstance, RouteHandlerMethod, RouteShorthandOptions } from "fastify";
import { describe, expect, test } from "vitest";
import { openOrdersForTest, seenByClient } from "./fastify-orders.ts";
import { gate } from "./gate.ts";

interface Row {
  readonly name: string;
  readonly app?: (app: FastifyInstance) => void;
  readonly route?: RouteShorthandOptions;
  readonly handler: RouteHandlerMethod;
}

const object = (properties: object, more: object = {}) => ({
  type: "object",
  properties,
  ...more,
});
const schemaOf = (schema: object): RouteShorthandOptions => ({
  schema: { response: { 200: schema } },
});
const content = (schemas: Record<string, object>) =>
  schemaOf({
    description: "by type",
    content: Object.fromEntries(
      Object.entries(schemas).map(([type, schema]) => [type, { schema }]),
    ),
  });
const onlyA = object({ a: { type: "number" } });
const wraps = (app: FastifyInstance) =>
  app.addHook("preSerialization", async (_request, _reply, payload) => ({ data: payload }));

/** Answers that are repeated, byte for byte. */
const kept: readonly Row[] = [
  {
    name: "a JSON text under a schema",
    route: schemaOf(onlyA),
    handler: async (_request, reply) => reply.type("application/json").send('{"a":1,"extra":2}'),
  },
  {
    name: "JSON bytes under a schema",
    route: schemaOf(onlyA),
    handler: async (_request, reply) =>
      reply.type("application/json").send(Buffer.from('{"a":1,"extra":2}')),
  },
  {
    name: "a JSON text under a preSerialization hook",
    app: wraps,
    handler: async (_request, reply) => reply.type("application/json").send('{"a":1}'),
  },
  { name: "a value that preSerialization wraps", app: wraps, handler: async () => ({ a: 1 }) },
  {
    name: "a value that a hook without a promise wraps",
    app: (app) =>
      void app.addHook("preSerialization", (_request, _reply, payload, done) =>
        done(null, { data: payload }),
      ),
    handler: async () => ({ a: 1 }),
  },
  {
    name: "status and headers of a preSerialization hook",
    app: (app) =>
      void app.addHook("preSerialization", async (_request, reply, payload) => {
        reply.code(202).header("location", "/orders/7");
        return payload;
      }),
    handler: async () => ({ a: 1 }),
  },
  {
    name: "a Date as a date",
    route: schemaOf(object({ at: { type: "string", format: "date" } })),
    handler: async () => ({ at: new Date(86_400_000) }),
  },
  { name: "NaN and Infinity", handler: async () => ({ a: Number.NaN, b: [1 / 0] }) },
  {
    name: "a number that a schema rounds",
    route: schemaOf(object({ a: { type: "integer" } })),
    handler: async () => ({ a: 1.7 }),
  },
  {
    name: "a BigInt under a schema",
    route: schemaOf(object({ a: { type: "integer" } })),
    handler: async () => ({ a: 2n ** 60n }),
  },
  {
    name: "a RegExp under a schema",
    route: schemaOf(object({ a: { type: "string" } })),
    handler: async () => ({ a: /x+/g }),
  },
  {
    name: "a schema of all 2xx",
    route: { schema: { response: { "2xx": onlyA } } },
    handler: async (_request, reply) => reply.code(201).send({ a: 1, hidden: 2 }),
  },
  {
    name: "a schema by content type",
    route: content({ "application/json": onlyA, "application/vnd.v2+json": object({}) }),
    handler: async () => ({ a: 1, hidden: 2 }),
  },
  {
    name: "a schema of a content type that the handler sets",
    route: content({ "application/json": object({}), "application/vnd.v2+json": onlyA }),
    handler: async (_request, reply) =>
      reply.type("application/vnd.v2+json").send({ a: 1, hidden: 2 }),
  },
  {
    name: "a schema of any content type",
    route: content({ "*/*": onlyA }),
    handler: async () => ({ a: 1, hidden: 2 }),
  },
  {
    name: "a serializer of the handler's own",
    handler: async (_request, reply) =>
      reply
        .type("application/xml")
        .serializer(({ a }: { a: number }) => `<a>${a}</a>`)
        .send({ a: 1 }),
  },
  {
    name: "a serializer of the handler's own, for a text",
    handler: async (_request, reply) =>
      reply
        .type("text/csv")
        .serializer((text: string) => `"${text}"`)
        .send("a"),
  },
  {
    name: "a serializer that a hook has set, as @fastify/accepts-serializer",
    app: (app) =>
      void app.addHook("preHandler", async (_request, reply) => {
        reply
          .type("application/x-list")
          .serializer((value: object) => `list ${Object.keys(value)}`);
      }),
    handler: async () => ({ a: 1, b: 2 }),
  },
  {
    name: "a JSON type without a charset, of a serializer that a hook has set",
    app: (app) =>
      void app.addHook("preHandler", async (_request, reply) => {
        reply.type("application/json").serializer((value: object) => JSON.stringify([value]));
      }),
    handler: async () => ({ a: 1 }),
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
    name: "the serializer of the application",
    app: (app) =>
      void app.setReplySerializer((payload, status) => JSON.stringify([payload, status])),
    handler: async () => ({ a: 1 }),
  },
  {
    name: "the application's serializer before a schema by content type",
    app: (app) => void app.setReplySerializer((payload) => JSON.stringify([payload])),
    route: content({ "application/json": onlyA }),
    handler: async () => ({ a: 1 }),
  },
  {
    name: "a compiler of serializers",
    route: {
      ...schemaOf(onlyA),
      serializerCompiler: () => (value) => `[${JSON.stringify(value)}]`,
    },
    handler: async () => ({ a: 1 }),
  },
  {
    name: "reply.serializeInput",
    route: schemaOf(onlyA),
    handler: async (_request, reply) =>
      reply.type("application/json").send(reply.serializeInput({ a: 1, hidden: 2 }, "200")),
  },
  { name: "a text", handler: async () => "placed" },
  { name: "a text without letters", handler: async (_request, reply) => reply.send("") },
  { name: "a text beyond ASCII", handler: async () => "bestellt: 7 €, 🛒" },
  {
    name: "a text of a type without a charset",
    handler: async (_request, reply) => reply.type("text/html").send("<p>placed"),
  },
  {
    name: "a text of a type that is neither text nor JSON",
    handler: async (_request, reply) => reply.type("application/xml").send("<a/>"),
  },
  {
    name: "a text as JSON with a charset of its own",
    handler: async (_request, reply) => reply.type("application/json; charset=UTF-8").send("{}"),
  },
  {
    name: "a problem document",
    handler: async (_request, reply) =>
      reply.type("application/problem+json").send({ title: "placed, but late" }),
  },
  { name: "bytes", handler: async () => Buffer.from([1, 2, 255]) },
  { name: "bytes that are a text", handler: async () => Buffer.from("placed") },
  { name: "no bytes", handler: async () => Buffer.alloc(0) },
  { name: "a typed array", handler: async () => new Uint16Array([1, 2, 65_535]).subarray(1) },
  { name: "null", handler: async () => null },
  {
    name: "null in a type",
    handler: async (_request, reply) => reply.type("text/plain").send(null),
  },
  { name: "nothing", handler: async () => undefined },
  { name: "a number", handler: async () => 7 },
  { name: "true", handler: async () => true },
  { name: "an array", handler: async () => [1, { a: 2 }] },
  {
    name: "a value without a promise",
    handler: ((_request: unknown, reply: { send(value: object): void }) => {
      reply.send({ a: 1 });
    }) as RouteHandlerMethod,
  },
  {
    name: "a value that is sent and not returned",
    handler: async (_request, reply) => void reply.send({ a: 1 }),
  },
  {
    name: "a value with toJSON",
    handler: async () => ({ toJSON: () => ({ shown: 1 }), hidden: 2 }),
  },
  {
    name: "a status behind 299",
    handler: async (_request, reply) => reply.redirect("/orders/7", 303),
  },
  {
    name: "204 with a payload",
    handler: async (_request, reply) => reply.code(204).send({ a: 1 }),
  },
  { name: "304 with a payload", handler: async (_request, reply) => reply.code(304).send("x") },
  {
    name: "a Response without a body",
    handler: async () =>
      new Response(null, { status: 202, headers: { location: "/orders/7" } }) as never,
  },
  {
    name: "an onSend hook that changes the body, the status and the headers",
    app: (app) =>
      void app.addHook("onSend", async (_request, reply, payload) => {
        reply.code(202).header("x-shop", "eu").header("cache-control", "no-store");
        return String(payload).replace("1", "one");
      }),
    handler: async () => ({ a: 1 }),
  },
  {
    name: "an onSend hook that makes bytes of it",
    app: (app) =>
      void app.addHook("onSend", (_request, reply, payload, done) => {
        reply.header("content-type", "application/octet-stream");
        done(null, Buffer.from(`${payload}`).reverse());
      }),
    handler: async () => ({ a: 1 }),
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
    name: "text, which an onSend hook sees as text",
    app: (app) => void app.addHook("onSend", async (_request, _reply, payload) => typeof payload),
    handler: async () => ({ a: 1 }),
  },
  {
    name: "an onSend hook of the route",
    route: { onSend: async (_request, _reply, payload) => `${payload} ` },
    handler: async () => ({ a: 1 }),
  },
  {
    name: "an answer behind early hints",
    handler: async (_request, reply) => {
      reply.writeEarlyHints({ link: "</style.css>; rel=preload" }, () => {});
      return { a: 1 };
    },
  },
];

describe("the first answer is what it is without a guard, and its repeat is the same:", () => {
  test.each(kept)("$name", async ({ app, route, handler }) => {
    const answers: unknown[] = [];
    const sent: unknown[] = [];
    for (const bare of [true, false]) {
      let runs = 0;
      const orders = openOrdersForTest({ bare });
      const { whenFree, place, submit } = orders;
      orders.app.addHook("onSend", async (_request, _reply, payload) => {
        sent.push(payload instanceof Response ? undefined : payload?.toString());
      });
      app?.(orders.app);
      place(async function (this: FastifyInstance, request, reply) {
        runs++;
        const value = await handler.call(this, request, reply);
        return value;
      }, route);
      answers.push(seenByClient(await submit()));
      if (bare) continue;
      await whenFree();
      const repeat = await submit();
      answers.push(seenByClient(repeat));
      expect([runs, repeat.headers["idempotent-replayed"]]).toEqual([1, "true"]);
    }
    expect(answers[1]).toEqual(answers[0]);
    expect(answers[2]).toEqual(answers[0]);
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
    expect((await records()).join()).toContain('"b":"{\\"id\\":7}"');
    expect((await records()).join()).not.toMatch(/passwordHash|argon|card|4000/);
  }
});

test("the handler of not found answers, and is repeated", async () => {
  const { app, place, twice } = openOrdersForTest({ guard: { idempotency: { store: "final" } } });
  app.addHook("onSend", async (_request, _reply, payload) => `${payload} `);
  app.setNotFoundHandler(async (_request, reply) => reply.code(404).send({ nothing: true }));
  let runs = 0;
  place(async (_request, reply) => {
    runs++;
    reply.callNotFound();
    return reply;
  });
  const [first, second] = await twice();
  expect([first.statusCode, first.body, runs]).toEqual([404, '{"nothing":true} ', 1]);
  expect(seenByClient(second)).toEqual(seenByClient(first));
  expect(second.headers["idempotent-replayed"]).toBe("true");
});

test.each<[string, RouteHandlerMethod]>([
  ["a value", async () => ({ a: 1 })],
  ["a stream", async () => Readable.from(["a", "b"])],
  ["a web stream", async () => new Blob(["ab"]).stream()],
])("HEAD of a route that answers GET with %s frees its user", async (_what, handler) => {
  const { app, headers, protect, whenFree } = openOrdersForTest();
  app.get("/orders", protect(handler));
  const { body, statusCode } = await app.inject({ method: "HEAD", url: "/orders", headers });
  expect([statusCode, body]).toEqual([200, ""]);
  await whenFree();
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
