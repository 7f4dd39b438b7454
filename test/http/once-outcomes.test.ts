import { Readable } from "node:stream";
import { describe, expect, test } from "vitest";
import { record } from "../support/channels.ts";
import { observer } from "../support/observer.ts";
import { until } from "../support/until.ts";
import { type Framework, hasLayers, koas, writesByHand } from "./frameworks.ts";
import { guardLayer, onKoa } from "./layers.ts";
import { codeOf, onAll, openOnce, orderKey, unmarked } from "./once-shop.ts";
import type { Layer, Turn } from "./turn.ts";

const tells = (status: number) => (turn: Turn, run: number) => turn.answer(status, { run });

/** An error that the application's error handler answers with this status. */
const errorWith = (status: number) => Object.assign(new Error("theirs"), { status });

/** Fails behind its parts. */
function failingStream(kind: string, parts: readonly string[]): Readable | ReadableStream {
  const chunks = (async function* () {
    await new Promise(setImmediate);
    for (const part of parts) yield Buffer.from(part);
    throw new Error("theirs");
  })();
  if (kind === "stream") return Readable.from(chunks);
  return new ReadableStream({
    pull: async (controller) => controller.enqueue((await chunks.next()).value),
  });
}

describe.each(onAll)("$name", (framework: Framework) => {
  /** Whether a retry ran again, or was repeated the first answer. */
  async function retried(handler: (turn: Turn, run: number) => unknown, options: object = {}) {
    const once = await openOnce({ framework, handler, ...options });
    const first = await once.submit({ key: orderKey });
    await once.shop.keyIsGone();
    const second = await once.submit({ key: orderKey });
    const isReplay = second.headers["idempotent-replayed"] === "true";
    expect(isReplay).toBe(once.runs === 1 && second.status !== 409);
    if (isReplay) expect(unmarked(second)).toEqual(unmarked(first));
    return { first, second, runs: once.runs, isReplay, errors: once.shop.errors };
  }

  const final = { guard: { idempotency: { store: "final" } } };
  test.each<[status: number, store: string, runs: number, options: object]>([
    [422, "success", 2, {}],
    [503, "success", 2, {}],
    [422, "final", 1, final],
    [409, "final", 2, final],
    [500, "final", 2, final],
  ])(
    "after an answer of %i, with store %j, it has run %i times",
    async (status, _store, runs, options) => {
      const retry = await retried(tells(status), options);
      expect([retry.first.status, retry.second.status, retry.runs]).toEqual([status, status, runs]);
    },
  );

  test("a function decides which answers are kept, and is never asked about 5xx", async () => {
    const asked: unknown[] = [];
    const store = ({ status, body }: { status: number; body?: Uint8Array | undefined }) => {
      asked.push([status, Buffer.from(body ?? []).toString()]);
      return status === 402;
    };
    const guard = { idempotency: { store } };
    expect((await retried(tells(402), { guard })).isReplay).toBe(true);
    expect((await retried(tells(201), { guard })).runs).toBe(2);
    expect((await retried(tells(500), { guard })).runs).toBe(2);
    expect(asked).toEqual([
      [402, '{"run":1}'],
      [201, '{"run":1}'],
      [201, '{"run":2}'],
    ]);
  });

  test("a store function that throws keeps nothing, and the answer is sent", async () => {
    const store = () => {
      throw new Error("theirs");
    };
    const { first, runs } = await retried(tells(201), { guard: { idempotency: { store } } });
    expect([first.status, runs]).toEqual([201, 2]);
  });

  test.each<[string, (turn: Turn) => unknown]>([
    ["fails, and the error handler answers 200", () => Promise.reject(errorWith(200))],
    [
      "passes an error on that the error handler answers with 201",
      (turn) => turn.fail(errorWith(201)),
    ],
  ])("after a handler that %s a retry runs again", async (_how, fail) => {
    const { first, second, runs, errors } = await retried(async (turn, run) => {
      if (run === 1) await fail(turn);
      else turn.answer(201, { run });
    }, final);
    expect(first.body).toBe('{"failed":true}');
    expect([second.status, second.body, runs]).toEqual([201, '{"run":2}', 2]);
    expect(errors).toHaveLength(1);
  });

  test.runIf(writesByHand(framework))(
    "a handler that fails after its answer has been given is repeated",
    async () => {
      const { first, isReplay } = await retried((turn) => {
        const res = turn.byHand();
        res.writeHead(201, { "content-type": "text/plain" });
        res.end("placed");
        throw new Error("the mail was not sent");
      });
      expect([first.status, first.body, isReplay]).toEqual([201, "placed", true]);
    },
  );

  test.runIf(writesByHand(framework))(
    "a handler that fails in the middle of its answer has answered, and is not run again",
    async () => {
      const once = await openOnce({
        framework,
        handler: (turn) => {
          const res = turn.byHand();
          res.writeHead(201, { "content-type": "text/plain" });
          res.write("half");
          setImmediate(() => res.end(" and what somebody else said"));
          throw new Error("theirs");
        },
      });
      await once.submit({ key: orderKey }).catch(() => {});
      await once.whenKept(1);
      const retry = await once.submit({ key: orderKey });
      expect([retry.status, codeOf(retry)]).toEqual([409, "idempotency_answer_unavailable"]);
      expect(once.runs).toBe(1);
    },
  );

  // The compatibility layer of HTTP/2 sends the answer without them.
  test.skipIf(framework.http === 2)(
    "a handler whose headers are refused has answered nothing",
    async () => {
      const { second, runs } = await retried((turn, run) => {
        if (run === 2) return turn.answer(201, { run });
        turn.res.writeHead(201, { "x-order": "two\nlines" });
      });
      expect([second.body, runs]).toEqual(['{"run":2}', 2]);
    },
  );

  test.runIf(hasLayers(framework))(
    "a failure under an inner guard is not kept, whatever is made of it further out",
    async () => {
      const forgiving: Layer = {
        express: () => (_req, _res, next) => next(),
        koa: () => async (ctx, next) => {
          await next().catch(() => {
            ctx.status = 200;
            ctx.body = { failed: true };
          });
        },
      };
      const { lock } = (await openOnce({ framework })).shop;
      const inner = guardLayer(lock);
      const inside = framework.family === "koa" ? [forgiving, inner] : [forgiving];
      const { first, second, runs } = await retried(
        async (turn, run) => {
          if (run === 1) throw errorWith(200);
          turn.answer(201, { run });
        },
        { inside, lock },
      );
      expect([first.status, first.body]).toEqual([200, '{"failed":true}']);
      expect([second.body, runs]).toEqual(['{"run":2}', 2]);
    },
  );

  test("an answer that is not to be kept is not kept", async () => {
    const { first, second, runs } = await retried((turn, run) => {
      turn.submission?.doNotStore();
      turn.answer(200, { errors: ["the card was refused"], run });
    });
    expect([first.status, second.body, runs]).toEqual([
      200,
      '{"errors":["the card was refused"],"run":2}',
      2,
    ]);
  });

  test("a handler that has lost its lease is repeated all the same", async () => {
    const key = { is: "" };
    const completed = record("submit-lock:complete");
    const { isReplay } = await retried(async (turn, run) => {
      key.is = turn.lease?.key ?? "";
      await observer().send("DEL", key.is);
      turn.answer(201, { run });
    });
    expect(isReplay).toBe(true);
    expect(completed.filter((each) => each.key === key.is)).toMatchObject([{ outcome: "late" }]);
  });

  // Koa 2 makes JSON of a web stream.
  const kinds = framework.name.startsWith("Koa 2") ? ["stream"] : ["stream", "web stream"];

  test.each(
    kinds.flatMap((kind) => [
      { kind, when: "after its first byte has answered", chunks: ["x".repeat(100_000)], runs: 1 },
      { kind, when: "before its first byte has answered nothing", chunks: [], runs: 2 },
    ]),
  )("a $kind that fails $when", async ({ kind, chunks, runs }) => {
    const once = await openOnce({
      framework,
      handler: async (turn, run) => {
        if (run === 2) return turn.answer(201, { run });
        turn.res.statusCode = 201;
        await turn.stream(failingStream(kind, chunks));
      },
    });
    // Koa 2 leaves the response open.
    once.begin({ key: orderKey });
    await until(() => once.runs === 1, { what: "the order" });
    await once.whenKept(2 - runs);
    const retry = await once.submit({ key: orderKey });
    expect([retry.status, once.runs]).toEqual([runs === 1 ? 409 : 201, runs]);
  });
});

describe.each(koas)("$name", (framework: Framework) => {
  test("a failure further out, after the handler has answered, does not undo its answer", async () => {
    const failing = onKoa(async (ctx, next) => {
      await next();
      if (ctx.get("x-fail")) throw errorWith(500);
    });
    const once = await openOnce({ framework, outside: [failing] });
    const first = await once.submit({ key: orderKey, headers: { "x-fail": "1" } });
    expect(first.status).toBe(500);
    await once.whenKept(1);
    const retry = await once.submit({ key: orderKey });
    expect([retry.status, retry.body]).toEqual([201, '{"run":1}']);
    expect(once.runs).toBe(1);
  });
});
