import { PassThrough, Readable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import type { Response } from "express";
import { describe, expect, test } from "vitest";
import { until } from "../support/until.ts";
import { expresses, koas, mainFrameworks } from "./frameworks.ts";
import { layerThatWaits, onKoa } from "./layers.ts";
import { codeOf, openOnce, openWaiting, orderKey } from "./once-shop.ts";
import type { Layer } from "./turn.ts";

/** As an adapter for serverless functions makes its requests. */
const withoutRawHeaders = layerThatWaits(async (req) => {
  req.rawHeaders = [];
});

describe.each(mainFrameworks)("$name", (framework) => {
  test("a key is read where the request has no raw headers", async () => {
    const shop = await openOnce({ framework, outside: [withoutRawHeaders] });
    const [first, second] = await shop.twice();
    expect([first.body, second.body, shop.runs]).toEqual(['{"run":1}', '{"run":1}', 1]);
  });

  test("a request that somebody has answered while it waited is not answered again", async () => {
    const errors: unknown[] = [];
    let replays = 0;
    const { goOn, once: shop } = await openWaiting({
      framework,
      guard: { idempotency: { waitMs: 5_000 } },
      outside: [answeringAfter(100)],
      onError: (error) => errors.push(error),
      answers: {
        onReplay: () => {
          replays++;
          return [200, {}];
        },
      },
      handler: (turn) => {
        turn.answer(201, { placed: true });
      },
    });
    const first = await shop.start({ key: orderKey });
    expect((await shop.submit({ key: orderKey, headers: { "x-hurry": "1" } })).status).toBe(504);
    goOn();
    expect((await first.reply).status).toBe(201);
    await shop.whenKept(1);
    // What waited looks at least every 200 ms.
    await sleep(500);
    expect([replays, errors]).toEqual([0, []]);
  });

  test("of a handler's own complete, the headers of the guard's list are repeated, and no other", async () => {
    const shop = await openOnce({
      framework,
      guard: { idempotency: { replayHeaders: ["x-order"] } },
      handler: async (turn) => {
        const headers = {
          "set-cookie": "sid=1",
          "content-length": "999",
          "X-Order": "7",
          "x-cart": "8",
        };
        await turn.lease?.complete({ status: 201, headers, body: "placed" });
        turn.answer(201, "placed", "text/plain");
      },
    });
    const [, second] = await shop.twice();
    expect(second.status).toBe(201);
    expect(second.body).toBe("placed");
    expect(second.headers).not.toHaveProperty("set-cookie");
    expect(second.headers).not.toHaveProperty("x-cart");
    expect(second.headers["x-order"]).toBe("7");
  });
});

describe.each(expresses.filter(({ seesWork }) => seesWork))("$name", (framework) => {
  const failing = (answer: (res: Response) => void) =>
    openOnce({
      framework,
      handler: async (turn, run) => {
        const { res } = turn.express ?? {};
        if (run > 1 || res === undefined) return turn.answer(201, { run });
        answer(res);
        throw new Error("theirs");
      },
    });

  test("a head that has not left is no answer", async () => {
    const shop = await failing((res) => res.writeHead(201));
    await shop.submit({ key: orderKey }).catch(() => {});
    await shop.shop.keyIsGone();
    expect((await shop.submit({ key: orderKey })).body).toBe('{"run":2}');
  });

  test("an end that failed does not make a whole body of what was written", async () => {
    const shop = await failing((res) => {
      res.write("half");
      expect(() => res.end(42 as never)).toThrow(TypeError);
    });
    await shop.submit({ key: orderKey }).catch(() => {});
    await shop.whenKept(1);
    const reply = await shop.submit({ key: orderKey });
    expect([reply.status, codeOf(reply)]).toEqual([409, "idempotency_answer_unavailable"]);
    expect(shop.runs).toBe(1);
  });
});

describe.each(koas)("$name", (framework) => {
  test("a body stream that closes before its first byte is no answer", async () => {
    const shop = await openOnce({
      framework,
      handler: (turn, run) => {
        if (run > 1) return turn.answer(201, { run });
        const source = new PassThrough();
        if (turn.ctx !== undefined) turn.ctx.body = source;
        setTimeout(() => source.destroy(), 50);
      },
    });
    // Koa 2 leaves the response open.
    const call = shop.begin({ key: orderKey });
    call.reply.catch(() => {});
    await until(() => shop.runs === 1, { what: "the order" });
    await shop.shop.keyIsGone();
    call.abort();
    expect((await shop.submit({ key: orderKey })).body).toBe('{"run":2}');
  });

  test("a body stream that is closed already does not keep the lock", async () => {
    const shop = await openOnce({
      framework,
      handler: async (turn) => {
        const source = new Readable({ read() {} });
        if (turn.ctx !== undefined) turn.ctx.body = source;
        source.destroy();
        await sleep(20);
      },
    });
    const call = shop.begin({ key: orderKey });
    call.reply.catch(() => {});
    await until(() => shop.runs === 1, { what: "the order" });
    await shop.shop.keyIsGone();
    call.abort();
  });

  test("a replay without a body is none whatever type outer middleware has set", async () => {
    const typed = onKoa((ctx, next) => {
      ctx.type = "json";
      return next();
    });
    const shop = await openOnce({
      framework,
      outside: [typed],
      handler: (turn) => {
        if (turn.ctx === undefined) return;
        turn.ctx.redirect("/orders/7");
        turn.ctx.status = 303;
        turn.ctx.body = Readable.from(["moved"]);
      },
    });
    const [, second] = await shop.twice();
    expect([second.status, second.headers["location"], second.body]).toEqual([
      303,
      "/orders/7",
      "",
    ]);
  });
});

/** A time-out of the application's, for requests in a hurry. */
function answeringAfter(ms: number): Layer {
  return {
    express: () => (req, res, next) => {
      if (req.headers["x-hurry"] !== undefined) setTimeout(() => res.status(504).end(), ms);
      next();
    },
    koa: () => async (ctx, next) => {
      if (ctx.req.headers["x-hurry"] === undefined) return await next();
      void next().catch(() => {});
      await sleep(ms);
      ctx.status = 504;
      ctx.body = "";
    },
  };
}
