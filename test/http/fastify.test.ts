import { Readable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import Fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest } from "fastify";
import { expect, test } from "vitest";
import { submitGuard } from "../../src/fastify/index.ts";
import { InvalidOptionError, MemoryStore, SubmitLock } from "../../src/index.ts";
import { heldBackMs } from "../../src/node/exchange.ts";
import { until } from "../support/until.ts";
import { openOrdersForTest } from "./fastify-orders.ts";
import { gate } from "./gate.ts";

/** A client that leaves as soon as the handler has begun. */
async function submitAndLeave(app: FastifyInstance, user: string, begun: Promise<unknown>) {
  const url = await app.listen({ port: 0, host: "127.0.0.1" });
  const left = new AbortController();
  const headers = { "x-user": user };
  const answer = fetch(`${url}/orders`, { method: "POST", headers, signal: left.signal });
  await begun;
  left.abort();
  await expect(answer).rejects.toThrow();
}

test("an outer guard keeps what an inner guard of another lock replays", async () => {
  const idOf = ({ headers }: FastifyRequest) => `${headers["x-outer"]}`;
  const { app, guard } = openOrdersForTest({ guard: { idempotency: { submissionId: idOf } } });
  const lock = new SubmitLock({ store: new MemoryStore() });
  const inner = submitGuard({ lock, userId: () => "42", idempotency: {} });
  let runs = 0;
  app.post("/", guard.protect(inner.protect(async () => ({ run: ++runs }))));
  for (const [outer, key] of ["a7", "b7", "b8"].map((ids) => ids.split(""))) {
    const headers = { "x-user": "a", "x-outer": outer, "idempotency-key": key };
    const answer = await app.inject({ method: "POST", url: "/", headers });
    expect([answer.statusCode, answer.json()]).toEqual([200, { run: 1 }]);
  }
  await lock.close();
});

test.each(["return reply", "return reply at once", "return reply behind hijack", "a callback"])(
  "a client that leaves does not end work that goes on unseen: %s",
  async (how) => {
    const { app, place, isFree, user, whenFree } = openOrdersForTest({
      app: { forceCloseConnections: true },
    });
    const begun = gate();
    const over = gate();
    const work = (reply: FastifyReply) => {
      if (how.includes("hijack")) reply.hijack();
      begun.open();
      void over.opened.then(() => (reply.sent ? reply.raw.end() : reply.send({ run: 1 })));
    };
    if (how === "a callback") {
      place((_request, reply) => work(reply));
    } else if (how.includes("at once")) {
      // Not async.
      place((_request, reply) => {
        work(reply);
        return reply;
      });
    } else {
      place(async (_request, reply) => {
        work(reply);
        return reply;
      });
    }
    await submitAndLeave(app, user, begun.opened);
    await sleep(heldBackMs + 200);
    expect(await isFree()).toBe(false);
    over.open();
    await whenFree();
  },
);

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
  const { app, place, submit } = openOrdersForTest({
    guard: options,
    app: { logger: { stream: { write } } },
  });
  app.addContentTypeParser("text/csv", async () => undefined);
  place(async () => {
    throw Object.assign(new Error("theirs"), { code: "THEIRS", statusCode: 502 });
  });
  const reply = await submit({ headers: { "content-type": "text/csv" }, payload: "7" });
  expect(reply.statusCode).toBe(status);
  const errors = lines.filter(({ err }) => err !== undefined);
  expect(errors).toMatchObject([{ reqId: "req-1", err: { code }, res: { statusCode: status } }]);
});

test("files that no parser has read are a 415, though @fastify/multipart offers to read them", async () => {
  const { app, place, submit } = openOrdersForTest({
    guard: { idempotency: { submissionId: (request) => Object(request.body).id } },
  });
  // As the plugin has it, without attachFieldsToBody.
  app.addContentTypeParser("multipart/form-data", async () => undefined);
  app.decorateRequest("file", () => {});
  app.decorateRequest("files", () => {});
  place(async () => expect.fail("it ran"));
  const type = { "content-type": "multipart/form-data; boundary=b", "idempotency-key": "" };
  const reply = await submit({ headers: type, payload: "--b--" });
  expect(reply.statusCode).toBe(415);
});

test("a user is free whose client has left before a hook fails over a stream", async () => {
  const { app, place, user, whenFree } = openOrdersForTest({
    app: { forceCloseConnections: true },
    times: { maxHoldMs: 600_000 },
  });
  const [begun, left] = [gate(), gate()];
  app.addHook("onSend", async () => {
    throw new Error("the session store is away");
  });
  place(async (_request, reply) => {
    reply.raw.once("close", left.open);
    begun.open();
    await left.opened;
    return Readable.from(["placed"]);
  });
  await submitAndLeave(app, user, begun.opened);
  await left.opened;
  await whenFree();
});

test("an answer that an async handler sends without returning the reply passes onSend once", async () => {
  const { app, place, submit } = openOrdersForTest();
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
  const { app, guard, submit, whenFree } = openOrdersForTest();
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
    const { body, headers } = await submit({ url });
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
  const { guard } = openOrdersForTest();
  expect(() => guard.protect(7 as never)).toThrow(InvalidOptionError);
  expect(() => guard.protect(((_a: 1, _b: 2, _done: 3) => {}) as never)).toThrow(
    /without a third parameter/,
  );
});

test.each([
  ["nothing more", {}],
  ["a cooldown", { cooldownMs: 1 }],
  ["idempotency", { idempotency: {} }],
])(
  "of two guards of different locks, the outer one keeps the answer: within, %s",
  async (_what, more) => {
    const lock = () => new SubmitLock({ store: new MemoryStore() });
    const outer = submitGuard({ lock: lock(), userId: () => "42", idempotency: { waitMs: 0 } });
    const inner = submitGuard({ lock: lock(), userId: () => "cart:7", ...more });
    let runs = 0;
    const app = Fastify();
    app.post("/orders", outer.protect(inner.protect(async () => ({ run: ++runs }))));
    const submit = () =>
      app.inject({ method: "POST", url: "/orders", headers: { "idempotency-key": "cart-7" } });
    expect((await submit()).body).toBe('{"run":1}');
    const again = await until(
      async () => {
        const reply = await submit();
        return reply.statusCode === 200 && reply;
      },
      { what: "the kept answer" },
    );
    expect([again.body, again.headers["idempotent-replayed"], runs]).toEqual([
      '{"run":1}',
      "true",
      1,
    ]);
    await app.close();
  },
);
