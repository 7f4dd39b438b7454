import type { ServerResponse } from "node:http";
import { connect as connectHttp2, constants } from "node:http2";
import { setTimeout as sleep } from "node:timers/promises";
import type { RequestHandler, Response } from "express";
import type { Middleware } from "koa";
import { describe, expect, onTestFinished, test } from "vitest";
import { until } from "../support/until.ts";
import { expresses, type Framework, koas, newer, seeing } from "./frameworks.ts";
import { gate } from "./gate.ts";
import { codeOf, type OnceShop, openOnce, orderKey } from "./once-shop.ts";
import { shortTimes } from "./shop.ts";
import type { Layer, Turn } from "./turn.ts";

const key = orderKey;

async function isUnavailable(once: OnceShop): Promise<void> {
  const retry = await once.submit({ key });
  expect([retry.status, codeOf(retry)]).toEqual([409, "idempotency_answer_unavailable"]);
  expect(once.runs).toBe(1);
}

/** A time-out answers the first click, and only then the handler goes on. */
async function answers503(once: OnceShop, goOn: { open(): void }): Promise<void> {
  expect((await once.submit({ key })).status).toBe(503);
  goOn.open();
}

/** Answers for a handler that takes too long, in the ways in which applications do. */
const timeOuts: [how: string, koa: (late: () => Promise<void>) => Middleware][] = [
  [
    "throws 503",
    (late) => (ctx, next) => Promise.race([next(), late().then(() => ctx.throw(503, "too late"))]),
  ],
  [
    "answers 408",
    (late) => async (ctx, next) => {
      const work = next();
      if ((await Promise.race([work, late().then(() => "late")])) !== "late") return;
      ctx.status = 408;
      ctx.body = { late: true };
      work.catch(() => {});
    },
  ],
];

describe.each(koas)("$name", (framework: Framework) => {
  const open = (
    koa: (typeof timeOuts)[number][1],
    handler: (turn: Turn, late: Promise<void>) => unknown,
  ) => {
    const [begun, goOn] = [gate(), gate()];
    // Only the first time: a retry has all the time that it needs.
    let clicks = 0;
    const late = () => (++clicks > 1 ? new Promise<void>(() => {}) : begun.opened);
    const timeOut: Layer = { koa: () => koa(late), express: () => () => {} };
    const outside = [timeOut];
    const run = (turn: Turn) => {
      begun.open();
      return handler(turn, goOn.opened);
    };
    return openOnce({ framework, outside, handler: run }).then((once) => ({ once, goOn }));
  };

  const ends: [how: string, end: (turn: Turn) => void][] = [
    ["answers 201", (turn) => turn.answer(201, { order: 7 })],
    ["answers 200 by its body alone", ({ ctx }) => Object.assign(ctx ?? {}, { body: "placed" })],
    ["redirects", ({ ctx }) => ctx?.redirect("/orders/7")],
  ];
  for (const [how, koa] of timeOuts) {
    test.each(ends)(`P9: a time-out that ${how} for a handler that then %s`, async (_how, end) => {
      const { once, goOn } = await open(koa, async (turn, late) => {
        await late;
        end(turn);
      });
      expect([503, 408]).toContain((await once.submit({ key })).status);
      goOn.open();
      await once.whenKept(1);
      await isUnavailable(once);
    });

    test.each<[how: string, end: (turn: Turn) => void]>([
      ["answers 422", (turn) => turn.answer(422, { stock: 0 })],
      ["throws", ({ ctx }) => ctx?.throw(422, "no stock")],
      ["says nothing", () => {}],
    ])(`a time-out that ${how} for a handler that then %s: a retry runs`, async (_how, end) => {
      const { once, goOn } = await open(koa, async (turn, late) => {
        if (once.runs > 1) return turn.answer(201, { run: 2 });
        await late;
        end(turn);
      });
      expect([503, 408]).toContain((await once.submit({ key })).status);
      goOn.open();
      await once.whenKept(0);
      expect((await once.submit({ key })).status).toBe(201);
    });
  }
});

const fastifies = newer.filter(({ family }) => family === "fastify");

describe.each(fastifies)("$name", (framework: Framework) => {
  /** A clock of the application's own, which sends for a handler that takes too long. */
  const open = async (end: (turn: Turn) => unknown) => {
    const goOn = gate();
    const once = await openOnce({
      framework,
      handler: async (turn) => {
        if (once.runs > 1) return { run: once.runs };
        setTimeout(() => turn.reply?.code(503).send({ late: true }), 10);
        await goOn.opened;
        return await end(turn);
      },
    });
    return { once, goOn };
  };

  test.each<[how: string, end: (turn: Turn) => unknown]>([
    ["returns a payload", () => ({ order: 7 })],
    ["returns a payload with its status", ({ reply }) => reply?.code(201) && { order: 7 }],
    ["sends", ({ reply }) => void reply?.code(201).send({ order: 7 })],
  ])("P9: a clock answers 503 for a handler that then %s", async (_how, end) => {
    const { once, goOn } = await open(end);
    await answers503(once, goOn);
    await once.whenKept(1);
    await isUnavailable(once);
  });

  test.each<[how: string, end: (turn: Turn) => unknown]>([
    ["refuses", ({ reply }) => reply?.code(422) && { stock: 0 }],
    ["throws", () => Promise.reject(new Error("no stock"))],
    ["returns nothing", () => undefined],
  ])("a clock answers 503 for a handler that then %s: a retry runs", async (_how, end) => {
    const { once, goOn } = await open(end);
    await answers503(once, goOn);
    await once.whenKept(0);
    expect((await once.submit({ key })).status).toBe(200);
  });
});

describe.each(expresses.filter(({ seesWork }) => seesWork))("$name", (framework: Framework) => {
  test("P5: a promise that resolves before anything was answered hides work that goes on", async () => {
    const [left, goOn] = [gate(), gate()];
    const once = await openOnce({
      framework,
      handler: async (turn, run) => {
        turn.res.once("close", left.open);
        // An old function with a callback, which is not awaited.
        void goOn.opened.then(() => turn.answer(201, { run }));
      },
    });
    const call = await once.start({ key });
    await sleep(20);
    call.abort();
    await left.opened;
    expect(codeOf(await once.submit({ key }))).toBe("idempotency_in_flight");
    expect(await once.shop.owner()).not.toBeNull();
    goOn.open();
    await once.whenKept(1);
    expect((await once.submit({ key })).body).toBe('{"run":1}');
    expect(once.runs).toBe(1);
  });

  test("a promise that resolves when its client has left is the end of its work", async () => {
    const left = gate();
    const once = await openOnce({
      framework,
      handler: async (turn) => {
        turn.res.once("close", left.open);
        await left.opened;
      },
    });
    (await once.start({ key })).abort();
    await once.whenKept(0);
  });

  test("work that nobody sees is held for maxHoldMs at most", async () => {
    const once = await openOnce({ framework, times: shortTimes, handler: async () => {} });
    const call = await once.start({ key });
    await sleep(20);
    call.abort();
    await once.whenKept(0);
  });

  /** A time-out in front of the guard, which answers the first click for a handler that is at work. */
  const openLate = async (end: (turn: Turn) => unknown) => {
    let clicks = 0;
    const [begun, goOn] = [gate(), gate()];
    const timeOut: RequestHandler = (_req, res, next) => {
      if (++clicks === 1) void begun.opened.then(() => res.status(503).json({ late: true }));
      next();
    };
    const once = await openOnce({
      framework,
      outside: [{ express: () => timeOut, koa: () => () => {} }],
      handler: async (turn) => {
        if (once.runs > 1) return turn.answer(201, { run: once.runs });
        begun.open();
        await goOn.opened;
        return await end(turn);
      },
    });
    return { once, goOn };
  };
  const express = ({ res }: Turn) => res as ServerResponse & Response;

  test.each<[how: string, end: (turn: Turn) => unknown]>([
    ["answers 201", (turn) => turn.answer(201, { order: 7 })],
    ["answers 200 without naming it", (turn) => express(turn).json({ order: 7 })],
    ["redirects", (turn) => express(turn).redirect("/orders/7")],
    ["answers 201 by hand", (turn) => express(turn).writeHead(201).end("placed")],
    ["ends by hand", (turn) => express(turn).end("placed")],
    ["sets 201, and sees that another answer was sent", (turn) => express(turn).status(201)],
  ])("P9: a time-out answers 503 for a handler that then %s", async (_how, end) => {
    const { once, goOn } = await openLate(end);
    await answers503(once, goOn);
    await once.whenKept(1);
    await isUnavailable(once);
  });

  test.each<[how: string, end: (turn: Turn) => unknown]>([
    ["answers 422", (turn) => turn.answer(422, { stock: 0 })],
    ["answers 503 itself", (turn) => turn.answer(503, { stock: 0 })],
    ["throws", () => Promise.reject(new Error("no stock"))],
    [
      "throws after it has set 201",
      (turn) => {
        express(turn).status(201);
        throw new Error("no stock");
      },
    ],
    ["sets a header before it has placed anything", (turn) => express(turn).set("x-cart", "7")],
    ["answers 422 by hand", (turn) => express(turn).writeHead(422).end()],
    [
      "sets a header and answers 422",
      (turn) => express(turn).set("x-stock", "0").status(422).json({ stock: 0 }),
    ],
    ["returns nothing", () => undefined],
  ])("a time-out answers 503 for a handler that then %s: a retry runs", async (_how, end) => {
    const { once, goOn } = await openLate(end);
    await answers503(once, goOn);
    await once.whenKept(0);
    expect((await once.submit({ key })).status).toBe(201);
  });

  test("P9: connect-timeout passes an error on, and placed() keeps a retry from running", async () => {
    let clicks = 0;
    const [begun, goOn] = [gate(), gate()];
    const timeOut: RequestHandler = (_req, _res, next) => {
      const tooLate = Object.assign(new Error("too late"), { status: 503 });
      if (++clicks === 1) void begun.opened.then(() => next(tooLate));
      next();
    };
    const once = await openOnce({
      framework,
      outside: [{ express: () => timeOut, koa: () => () => {} }],
      handler: async (turn) => {
        begun.open();
        await goOn.opened;
        turn.submission?.placed();
        // Fails, because the headers were sent.
        turn.answer(201, { order: 7 });
      },
    });
    await answers503(once, goOn);
    await once.whenKept(1);
    await isUnavailable(once);
  });
});

const onHttp2 = seeing.filter(({ http }) => http === 2);

describe.each(onHttp2)("P5: on $name, the stream's own end is the end", (framework: Framework) => {
  test.each<[how: string, answer: (turn: Turn) => void]>([
    [
      "respond",
      streamOf((stream) => {
        stream.respond({ ":status": 201 });
        stream.end("placed");
      }),
    ],
    [
      "respond, at once",
      streamOf((stream) => stream.respond({ ":status": 204 }, { endStream: true })),
    ],
    ["respondWithFile", streamOf((stream) => stream.respondWithFile(import.meta.filename))],
  ])("by %s", async (_how, answer) => {
    const once = await openOnce({ framework, handler: answer });
    expect((await once.submit({ key })).status).toBeLessThan(300);
    await until(async () => (await once.shop.owner()) === null, { what: "a user that is free" });
  });

  test("and a client that resets it before is not", async () => {
    const goOn = gate();
    const once = await openOnce({
      framework,
      handler: streamOf((stream) => {
        stream.respond({ ":status": 201 });
        stream.write("a part");
        void goOn.opened.then(() => stream.end());
      }),
    });
    const session = connectHttp2(`http://127.0.0.1:${once.shop.port}`);
    onTestFinished(() => session.destroy());
    const headers = { ":method": "POST", ":path": "/orders", "x-user": once.shop.user };
    const request = session.request(headers).on("error", () => {});
    request.end();
    request.once("data", () => request.close(constants.NGHTTP2_NO_ERROR));
    await until(() => request.closed, { what: "the stream to be reset" });
    await sleep(50);
    expect(await once.shop.owner()).not.toBeNull();
    goOn.open();
  });
});

// biome-ignore lint/suspicious/noExplicitAny: Node's HTTP/2 stream, which a response has.
function streamOf(use: (stream: any) => unknown) {
  return ({ byHand }: Turn): void => void use(Reflect.get(byHand(), "stream"));
}
