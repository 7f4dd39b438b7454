import { Readable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import Fastify, {
  type FastifyReply,
  type FastifyServerOptions,
  type RouteHandlerMethod,
} from "fastify";
import { describe, expect, onTestFinished, test } from "vitest";
import { type SubmitGuardOptions, submitGuard } from "../../src/fastify/index.ts";
import { InvalidOptionError, MemoryStore, SubmitLock } from "../../src/index.ts";
import { until } from "../support/until.ts";
import { gate } from "./gate.ts";
import { canAcquire } from "./shop.ts";

/** An application in one process: `inject` needs no socket. */
function open(options: Partial<SubmitGuardOptions> = {}, ofApp: FastifyServerOptions = {}) {
  const lock = new SubmitLock({ store: new MemoryStore(), maxHoldMs: 60_000 });
  const app = Fastify(ofApp);
  onTestFinished(async () => {
    await app.close();
    await lock.close({ timeoutMs: 0 });
  });
  const guard = submitGuard({
    lock,
    userId: ({ headers }) => headers["x-user"]?.toString(),
    idempotency: {},
    ...options,
  });
  const submit = (url = "/orders", body: object = { cart: 7 }) =>
    app.inject({
      method: "POST",
      url,
      headers: { "x-user": "42", "idempotency-key": "a-key" },
      payload: body,
    });
  /** Whether the user's lock is free. */
  const isFree = () => canAcquire(lock, "42");
  const whenFree = () => until(isFree, { what: "a free lock" });
  const place = (handler: RouteHandlerMethod) => app.post("/orders", guard.protect(handler));
  /** The answer, and its replay. */
  const twice = async () => {
    const first = await submit();
    await whenFree();
    return [first, await submit()] as const;
  };
  return { app, guard, place, submit, twice, isFree, whenFree };
}

describe("inject", () => {
  test("two clicks are one order, and a late one gets the first answer", async () => {
    const { place, submit } = open();
    let runs = 0;
    place(async (request, reply) => {
      await sleep(50);
      expect(request.submitLease?.signal.aborted).toBe(false);
      expect(request.submission?.source).toBe("key");
      return await reply.code(201).send({ run: ++runs });
    });
    const clicks = await Promise.all([submit(), submit()]);
    expect(clicks.map(({ statusCode }) => statusCode).sort()).toEqual([201, 409]);
    const late = await submit();
    expect([late.statusCode, late.json(), late.headers["idempotent-replayed"]]).toEqual([
      201,
      { run: 1 },
      "true",
    ]);
    expect((await submit("/orders", { cart: 8 })).statusCode).toBe(422);
    expect(runs).toBe(1);
  });
});

describe("a replay", () => {
  test("is serialised again, and passes onSend again", async () => {
    const { app, guard, twice } = open();
    const sent: unknown[] = [];
    app.addHook("onSend", async (_request, _reply, payload) => {
      sent.push(payload);
      return payload;
    });
    app.addHook("preSerialization", async (_request, _reply, payload) => ({ data: payload }));
    const properties = { data: { type: "object", properties: { run: { type: "number" } } } };
    const schema = { response: { 201: { type: "object", properties } } };
    app.post(
      "/orders",
      { schema },
      guard.protect(async (_request, reply) => reply.code(201).send({ run: 1, secret: 2 })),
    );
    const [first, second] = await twice();
    expect([first.body, second.body]).toEqual(['{"data":{"run":1}}', '{"data":{"run":1}}']);
    expect(sent).toEqual([first.body, first.body]);
    expect(second.headers["content-type"]).toBe(first.headers["content-type"]);
  });

  test.each([
    ["a value", () => ({ run: 1 })],
    ["text", () => "placed"],
    ["bytes", () => Buffer.from([1, 2, 255])],
    ["null", () => null],
    ["a number", () => 7],
  ])("of %s that was returned has the same body and type", async (_name, payload) => {
    const { place, twice } = open();
    place(async () => payload());
    const [first, second] = await twice();
    expect(second.headers["idempotent-replayed"]).toBe("true");
    expect([second.rawPayload, second.headers["content-type"]]).toEqual([
      first.rawPayload,
      first.headers["content-type"],
    ]);
  });

  test("of a redirect has its location, and no type", async () => {
    const { place, submit, whenFree } = open();
    place(async (_request, reply) => reply.redirect("/orders/7", 303));
    await submit();
    await whenFree();
    const { headers, statusCode } = await submit();
    expect([statusCode, headers["location"]]).toEqual([303, "/orders/7"]);
    expect(headers).not.toHaveProperty("content-type");
  });

  test("has no cookie of the first answer", async () => {
    const { place, submit, whenFree } = open();
    place(async (_request, reply) => reply.header("set-cookie", "sid=1").send({}));
    expect((await submit()).headers["set-cookie"]).toBe("sid=1");
    await whenFree();
    expect((await submit()).headers).not.toHaveProperty("set-cookie");
  });
});

test.each([
  ["throws", true],
  ["sends an error", false],
])("a handler that %s stores nothing, and its error handler answers", async (_how, throws) => {
  const { app, place, submit, whenFree } = open();
  let runs = 0;
  app.setErrorHandler((error, _request, reply) => {
    void reply.code(200).send({ failed: (error as Error).message });
  });
  place(async (_request, reply) => {
    runs++;
    const error = new Error("theirs");
    if (throws) throw error;
    return await reply.send(error);
  });
  for (let i = 0; i < 2; i++) {
    expect((await submit()).json()).toEqual({ failed: "theirs" });
    await whenFree();
  }
  expect(runs).toBe(2);
});

test("a handler without a promise holds the lock until it has sent", async () => {
  const { place, submit, isFree, whenFree } = open();
  const [begun, over] = [gate(), gate()];
  place((_request, reply) => {
    begun.open();
    void over.opened.then(() => reply.code(201).send({ run: 1 }));
  });
  const answer = submit();
  await begun.opened;
  await sleep(30);
  expect(await isFree()).toBe(false);
  over.open();
  expect((await answer).statusCode).toBe(201);
  await whenFree();
});

test.each(["return reply", "return reply behind hijack", "a callback"])(
  "a client that leaves does not end work that goes on unseen: %s",
  async (how) => {
    const { app, place, isFree, whenFree } = open();
    const begun = gate();
    const over = gate();
    const work = (reply: FastifyReply) => {
      if (how.includes("hijack")) reply.hijack();
      begun.open();
      void over.opened.then(() => (reply.sent ? reply.raw.end() : reply.send({ run: 1 })));
    };
    if (how === "a callback") {
      place((_request, reply) => work(reply));
    } else {
      place(async (_request, reply) => {
        work(reply);
        return reply;
      });
    }
    const url = await app.listen({ port: 0, host: "127.0.0.1" });
    const left = new AbortController();
    const headers = { "x-user": "42" };
    const answer = fetch(`${url}/orders`, { method: "POST", headers, signal: left.signal });
    await begun.opened;
    left.abort();
    await expect(answer).rejects.toThrow();
    await sleep(50);
    expect(await isFree()).toBe(false);
    over.open();
    await whenFree();
  },
);

test("a stream that is returned holds the lock until it has ended", async () => {
  const { place, submit, isFree, whenFree } = open();
  const [begun, over] = [gate(), gate()];
  async function* parts() {
    begun.open();
    yield "a";
    await over.opened;
    yield "b";
  }
  place(async () => Readable.from(parts()));
  const answer = submit();
  await begun.opened;
  await sleep(30);
  expect(await isFree()).toBe(false);
  over.open();
  expect((await answer).body).toBe("ab");
  await whenFree();
  expect((await submit()).json().code).toBe("idempotency_answer_unavailable");
});

test.each([
  [
    "the guard's error",
    { userId: () => ({}) as never, idempotency: undefined },
    "SUBMIT_LOCK_INVALID_USER_ID",
    500,
  ],
  ["a body that no parser has read", {}, "SUBMIT_LOCK_NO_FINGERPRINT", 415],
  ["the handler's error", { idempotency: undefined }, "THEIRS", 502],
])("%s is logged once, with its request and its status", async (_whose, options, code, status) => {
  const lines: Record<string, Record<string, unknown>>[] = [];
  const write = (line: string) => void lines.push(JSON.parse(line));
  const { app, place } = open(options, { logger: { stream: { write } } });
  app.addContentTypeParser("text/csv", async () => undefined);
  place(async () => {
    throw Object.assign(new Error("theirs"), { code: "THEIRS", statusCode: 502 });
  });
  const headers = { "x-user": "42", "idempotency-key": "a-key", "content-type": "text/csv" };
  const reply = await app.inject({ method: "POST", url: "/orders", headers, payload: "7" });
  expect(reply.statusCode).toBe(status);
  const errors = lines.filter(({ err }) => err !== undefined);
  expect(errors).toMatchObject([{ reqId: "req-1", err: { code }, res: { statusCode: status } }]);
});

test("an answer that an async handler sends without returning the reply passes onSend once", async () => {
  const { app, place, submit } = open();
  const sent: unknown[] = [];
  app.addHook("onSend", async (_request, _reply, payload) => {
    sent.push(payload);
    await sleep(20);
  });
  place(async (_request, reply) => void reply.send({ run: 1 }));
  expect((await submit()).json()).toEqual({ run: 1 });
  expect(sent).toEqual(['{"run":1}']);
});

test("the same path under another prefix is another submission", async () => {
  const { app, guard, submit, whenFree } = open();
  let runs = 0;
  const place = guard.protect(async () => ({ run: ++runs }));
  for (const prefix of ["/eu", "/us"]) {
    // Encapsulated: the hooks of one plugin are not those of the other.
    await app.register(
      (shop, _options, done) => {
        shop.addHook("onSend", async (_request, reply) => void reply.header("x-shop", prefix));
        shop.post("/orders", place);
        done();
      },
      { prefix },
    );
  }
  const seen: unknown[] = [];
  for (const url of ["/eu/orders", "/us/orders", "/eu/orders"]) {
    const { body, headers } = await submit(url);
    seen.push([headers["x-shop"], body, headers["idempotent-replayed"]]);
    await whenFree();
  }
  expect(seen).toEqual([
    ["/eu", '{"run":1}', undefined],
    ["/us", '{"run":2}', undefined],
    ["/eu", '{"run":1}', "true"],
  ]);
});

test("protect refuses anything but a handler", () => {
  const { guard } = open();
  expect(() => guard.protect(7 as never)).toThrow(InvalidOptionError);
  expect(() => guard.protect(((_a: 1, _b: 2, _done: 3) => {}) as never)).toThrow(
    /without a third parameter/,
  );
});
