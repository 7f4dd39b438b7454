import { Readable } from "node:stream";
import type { FastifyInstance, RouteHandlerMethod } from "fastify";
import { expect, test } from "vitest";
import { openOrdersForTest, seenByClient } from "./fastify-orders.ts";
import { gate } from "./gate.ts";

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
