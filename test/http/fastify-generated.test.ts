import fc from "fast-check";
import type { FastifyInstance, FastifyReply, RouteHandlerMethod } from "fastify";
import { expect, test } from "vitest";
import { openOrders, seenByClient } from "./fastify-orders.ts";

const pause = () => new Promise(setImmediate);
const hidden = "4000-0000-0000-0002";

const payloads: Record<string, () => unknown> = {
  object: () => ({ a: 1, hidden }),
  nested: () => ({ a: { b: [1, null, "x"] }, hidden }),
  "a date": () => ({ a: new Date(0), hidden }),
  "a big number": () => ({ a: 10n }),
  "what JSON lacks": () => ({ a: Number.NaN, b: undefined, c: /x/ }),
  array: () => [1, { hidden }],
  number: () => 7,
  null: () => null,
  nothing: () => undefined,
  text: () => "placed: ü €",
  "JSON text": () => `{"a":1, "hidden":"${hidden}"}`,
  "no text": () => "",
  bytes: () => Buffer.from([0, 200, 255]),
  "bytes of JSON": () => Buffer.from('{"a": 1}'),
};

const object = { type: "object", properties: { a: { type: "string" } } };
const byType = {
  description: "by type",
  content: { "application/json": { schema: object }, "*/*": { schema: { type: "object" } } },
};
const schemas: Record<string, object> = {
  none: {},
  status: { 200: object, 201: object },
  class: { "2xx": object, default: object },
  content: { "2xx": byType },
};

const answers: Record<string, (reply: FastifyReply, payload: unknown) => unknown> = {
  returns: (_reply, payload) => Promise.resolve(payload),
  "returns no promise": (reply, payload) => (payload === undefined ? reply.send() : payload),
  "sends and returns the reply": async (reply, payload) => reply.send(payload),
  "sends and awaits the reply": async (reply, payload) => void (await reply.send(payload)),
  "sends and returns nothing": async (reply, payload) => void reply.send(payload),
  "sends without a promise": (reply, payload) => void reply.send(payload),
  "sends later": (reply, payload) => void pause().then(() => reply.send(payload)),
  "returns the reply and sends later": (reply, payload) => {
    void pause().then(() => reply.send(payload));
    return reply;
  },
};

type Hook<Payload> = (reply: FastifyReply, payload: Payload) => unknown;
const before: Record<string, Hook<unknown>> = {
  wraps: (_reply, payload) => ({ data: payload }),
  "wraps later": (_reply, payload) => pause().then(() => ({ a: payload })),
  "sets headers": (reply, payload) => {
    reply.header("location", "/orders/7").header("x-of-hook", "1");
    return payload;
  },
  "sets the status": (reply, payload) => {
    reply.code(202);
    return payload;
  },
};
const isBody = (payload: unknown) => typeof payload === "string" || Buffer.isBuffer(payload);
const behind: Record<string, Hook<unknown>> = {
  // Bytes as well: where they are a text, the repeat has one.
  "changes texts": (_reply, payload) =>
    isBody(payload) ? `${payload}`.replace("a", "A") : payload,
  "makes bytes": (reply, payload) => {
    reply.header("x-encoded", "yes");
    return pause().then(() => (isBody(payload) ? Buffer.from(`${payload}`).reverse() : payload));
  },
  "sets headers": (reply, payload) => {
    reply.header("cache-control", "no-store").header("x-shop", "eu");
    return payload;
  },
  "sets the type": (reply, payload) => {
    reply.type("application/x-of-hook");
    return payload;
  },
};

const of = <Value>(table: Record<string, Value>) => fc.constantFrom(...Object.keys(table));
const someOf = <Value>(table: Record<string, Value>) => fc.array(of(table), { maxLength: 2 });
const cases = fc.record({
  payload: of(payloads),
  how: of(answers),
  status: fc.constantFrom(undefined, 200, 201, 204, 303, 402, 500),
  type: fc.constantFrom(
    undefined,
    "application/json",
    "application/json; charset=UTF-8",
    "application/problem+json",
    "text/html",
    "application/xml",
  ),
  schema: of(schemas),
  serializer: fc.constantFrom("none", "none", "handler", "hook", "application", "compiler"),
  before: someOf(before),
  behind: someOf(behind),
});
type Case = typeof cases extends fc.Arbitrary<infer Value> ? Value : never;

function mount(app: FastifyInstance, wanted: Case, seen: { before: number; first: string[] }) {
  const { serializer } = wanted;
  const own = (value: unknown) => `<${typeof value === "string" ? value : JSON.stringify(value)}>`;
  app.addHook("onSend", async (_request, _reply, payload) => {
    seen.first.push(isBody(payload ?? "") ? `${payload}` : "a value");
  });
  if (serializer === "application") app.setReplySerializer(own);
  if (serializer === "hook") {
    app.addHook("onRequest", async (_request, reply) => void reply.serializer(own));
  }
  for (const name of wanted.before) {
    app.addHook("preSerialization", async (_request, reply, payload) => {
      seen.before++;
      return before[name]?.(reply, payload);
    });
  }
  for (const name of wanted.behind) {
    app.addHook("onSend", async (_request, reply, payload) => behind[name]?.(reply, payload));
  }
  const schema = { response: schemas[wanted.schema] };
  return {
    own,
    route: serializer === "compiler" ? { schema, serializerCompiler: () => own } : { schema },
  };
}

async function answered(wanted: Case, bare: boolean) {
  const seen = { before: 0, first: [] as string[] };
  const orders = openOrders({ bare, guard: { idempotency: { replayHeaders: ["x-of-hook"] } } });
  const { own, route } = mount(orders.app, wanted, seen);
  let runs = 0;
  const handler = (_request: unknown, reply: FastifyReply) => {
    runs++;
    if (wanted.status !== undefined) reply.code(wanted.status);
    if (wanted.type !== undefined) reply.type(wanted.type);
    if (wanted.serializer === "handler") reply.serializer(own);
    return answers[wanted.how]?.(reply, payloads[wanted.payload]?.());
  };
  orders.place(handler as RouteHandlerMethod, route);
  try {
    const first = seenByClient(await orders.submit());
    if (bare) return { first };
    await orders.whenFree();
    const records = await orders.records();
    const hooks = { ...seen, first: [...seen.first] };
    const second = await orders.submit();
    await orders.whenFree();
    return { first, records, second, runs, hooks, after: seen };
  } finally {
    await orders.close();
  }
}

test("whatever a handler answers, the answer is what it is without a guard, and so is its repeat", async () => {
  const outcomes = { repeated: 0, ran: 0 };
  await fc.assert(
    fc.asyncProperty(cases, async (wanted) => {
      // Without a guard, Fastify sends nothing as well, before slow hooks have passed the payload.
      const how = wanted.how.replace("returns nothing", "returns the reply");
      const expected = await answered({ ...wanted, how }, true);
      const { first, records = [], second, runs, hooks, after } = await answered(wanted, false);
      expect(first).toEqual(expected.first);
      // No more than what the first onSend hook was given.
      const isShown = hooks?.first[0]?.includes(hidden) ?? false;
      expect(records.some((record) => record.includes(hidden)) && !isShown).toBe(false);
      if (second !== undefined && records.length > 0 && hooks?.first[0] === "a value") {
        // Fastify sends 204 all the same.
        expect([runs, second.statusCode]).toEqual([1, 409]);
      } else if (second !== undefined && records.length > 0) {
        outcomes.repeated++;
        expect(second.headers["idempotent-replayed"]).toBe("true");
        const repeat = seenByClient(second);
        // With null in a type, Fastify sends the type of no content.
        if (first.statusCode === 204) first.headers = repeat.headers = {};
        expect(repeat).toEqual(first);
        expect([runs, after?.before]).toEqual([1, hooks?.before]);
        const [shown, again] = after?.first ?? [];
        if (first.body !== "") expect(again).toBe(shown);
      } else {
        outcomes.ran++;
        expect(runs).toBe(2);
        expect(first.statusCode).toBeGreaterThanOrEqual(400);
      }
    }),
    { numRuns: Number(process.env["FASTIFY_RUNS"] ?? 100) },
  );
  expect(Math.min(outcomes.repeated, outcomes.ran)).toBeGreaterThan(0);
});
