import { createReadStream } from "node:fs";
import { PassThrough, Readable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { gunzipSync } from "node:zlib";
import compression from "compression";
import type { Request, Response } from "express";
import type { Context } from "koa";
import { describe, expect, test } from "vitest";
import { until } from "../support/until.ts";
import { allMain, expresses, type Framework, koas } from "./frameworks.ts";
import { gate } from "./gate.ts";
import { compressionLayer, layerThatWaits, onExpress, onKoa, sessionLayer } from "./layers.ts";
import {
  codeOf,
  type OnceOptions,
  type OnceShop,
  openOnce,
  orderKey,
  unmarked,
} from "./once-shop.ts";
import type { Layer, Turn } from "./turn.ts";

// The usual ways to answer, and usual middleware around them, are programs of the nets.

const file = fileURLToPath(import.meta.url);

/** A retry is told that there was an answer, which was not kept. */
async function isUnavailable(once: OnceShop, submit: object = {}): Promise<void> {
  const retry = await once.submit({ key: orderKey, ...submit });
  expect([retry.status, codeOf(retry)]).toEqual([409, "idempotency_answer_unavailable"]);
  expect(retry.headers["retry-after"]).toBeUndefined();
  expect(once.runs).toBe(1);
}

/** Ways to answer with more than is kept, and the headers of which a retry could be told. */
const tooLong = (turn: Turn, headers: Record<string, string>, status = 201) => {
  for (const [name, value] of Object.entries(headers)) {
    if (turn.reply === undefined) turn.res.setHeader(name, value);
    else turn.reply.header(name, value);
  }
  turn.answer(status, "x".repeat(65_537));
};

describe.each(allMain)("an answer on $name", (framework: Framework) => {
  test("whose headers are longer than 8 KiB is sent as it is, and not run again", async () => {
    const handler: OnceOptions["handler"] = (turn) => {
      const location = `/orders/${"x".repeat(8_200)}`;
      if (turn.reply === undefined) turn.res.setHeader("location", location);
      else turn.reply.header("location", location);
      turn.answer(201, "placed");
    };
    const once = await openOnce({ framework, handler });
    const first = await once.submit({ key: orderKey });
    expect([first.status, first.body]).toEqual([201, "placed"]);
    await once.whenKept(1);
    await isUnavailable(once);
    expect((await once.records())[0]?.length).toBeLessThan(300);
  });

  test("of up to 65 536 bytes is kept, and a longer one is sent as it is, and not run again", async () => {
    const handler: OnceOptions["handler"] = (turn) => tooLong(turn, {});
    const once = await openOnce({ framework, handler });
    const bare = await openOnce({ framework, handler, bare: true });
    const first = await once.submit({ key: orderKey });
    const { body, status } = await bare.submit();
    expect([first.status, first.body]).toEqual([status, body]);
    await once.whenKept(1);
    await isUnavailable(once);
    expect((await once.records())[0]?.length).toBeLessThan(300);
    const whole = await openOnce({ framework, handler: (turn) => turn.answer(201, body.slice(1)) });
    const [kept, repeat] = await whole.twice();
    expect([repeat.status, repeat.body]).toEqual([kept.status, kept.body]);
  });

  test.each([303, 308])(
    "of %i that is too long to be kept is repeated without a body",
    async (status) => {
      const headers = { location: "/orders/7", "content-encoding": "identity" };
      const once = await openOnce({ framework, handler: (turn) => tooLong(turn, headers, status) });
      const [, second] = await once.twice();
      const { location } = second.headers;
      expect([second.status, location, second.body]).toEqual([status, "/orders/7", ""]);
      expect(second.headers["idempotent-replayed"]).toBe("true");
      expect(second.headers["content-encoding"]).toBeUndefined();
    },
  );

  test.each([200, 201, 202])(
    "of %i that is too long to be kept is not repeated, whatever its headers say",
    async (status) => {
      const handler = (turn: Turn) => tooLong(turn, { location: "/orders/7" }, status);
      const once = await openOnce({ framework, handler });
      await once.submit({ key: orderKey });
      await once.whenKept(1);
      await isUnavailable(once);
    },
  );

  test("is repeated without its cookies, and with no other headers than replayHeaders adds", async () => {
    const headers = { "set-cookie": "cart=empty", "x-cart": "8", "x-order": "7" };
    const once = await openOnce({
      framework,
      guard: { idempotency: { maxBodyBytes: 70_000, replayHeaders: ["X-Order"] } },
      handler: (turn) => tooLong(turn, headers),
    });
    const [first, second] = await once.twice();
    expect(first.headers).toMatchObject({ "x-cart": "8", "x-order": "7" });
    expect(String(first.headers["set-cookie"])).toBe("cart=empty");
    expect(second.headers["x-order"]).toBe("7");
    for (const name of ["set-cookie", "x-cart"]) expect(second.headers).not.toHaveProperty(name);
    expect((await once.records()).join()).not.toMatch(/cookie|cart/i);
  });
});

const ofExpress: Record<string, (res: Response, req: Request) => unknown> = {
  "res.jsonp": (res) => res.jsonp({ order: 7 }),
  "res.render": (res) => {
    const { app } = res;
    app.engine("ts", (_path, options, done) =>
      done(null, `<p>${Reflect.get(options, "order")}</p>`),
    );
    res.status(201).render(file, { order: 7 });
  },
  "res.sendFile": (res) => new Promise((sent) => res.sendFile(file, sent)),
  "bytes that the handler uses again": async (res) => {
    const bytes = Buffer.from("first ");
    await new Promise<void>((written) => res.status(201).write(bytes, () => written()));
    bytes.fill("x");
    res.end("second");
  },
  "a status that is set behind the head": (res) => {
    res.status(201).type("text").flushHeaders();
    res.statusCode = 299;
    res.end("7");
  },
  "a head with a reason": (res) => {
    res.writeHead(201, "Placed", { "content-type": "text/csv" }).end("7");
  },
  "parts in several encodings": (res) => {
    res.status(201).type("text").write("one ");
    res.write("dHdv", "base64");
    res.end("21", "hex");
  },
  "a head that is written twice": (res) => {
    res.writeHead(201, { location: "/first" });
    expect(() => res.writeHead(202, { location: "/second" })).toThrow();
    res.end("placed");
  },
  "what is written behind the end": (res) => {
    res.on("error", () => {});
    res.status(201).end("placed");
    res.write("more");
    res.end("and more");
  },
};

/** Middleware whose hook fails when the head of a response is written for the first time. */
const failingHook = layerThatWaits(async (_req, res) => {
  const { writeHead } = res;
  let hasFailed = false;
  res.writeHead = ((...args: never[]) => {
    const isFirst = !hasFailed;
    hasFailed = true;
    if (isFirst) throw new Error("theirs");
    return Reflect.apply(writeHead, res, args);
  }) as typeof writeHead;
});

// A plain guard captures a response in the same way.
describe.each(expresses.filter(({ seesWork }) => seesWork))("$name", (framework: Framework) => {
  const open = (answering: (res: Response, req: Request) => unknown, more: object = {}) =>
    openOnce({
      framework,
      handler: ({ express }) => answering(express?.res as Response, express?.req as Request),
      ...more,
    });

  test.each(Object.entries(ofExpress))("%s is repeated byte for byte", async (way, answering) => {
    const once = await open(answering);
    const path = way === "res.jsonp" ? "/orders?callback=show" : "/orders";
    const [first, second] = await once.twice({ key: orderKey, path });
    const shown = ["content-type", "location", "etag", "last-modified"];
    for (const name of shown) expect(second.headers[name], name).toEqual(first.headers[name]);
    expect([second.status, second.body]).toEqual([first.status, first.body]);
    expect(second.headers["idempotent-replayed"]).toBe("true");
    expect(once.runs).toBe(1);
  });

  test("what write and end return, and their callbacks, are the response's own", async () => {
    const seen: unknown[] = [];
    const once = await open(async (res) => {
      seen.push(typeof res.write("one"));
      await new Promise<void>((written) => void res.write(" two", () => written()));
      await new Promise<void>((ended) => seen.push(res.end(" three", () => ended()) === res));
      seen.push("ended");
    });
    const [first, second] = await once.twice();
    expect(seen).toEqual(["boolean", true, "ended"]);
    expect([first.body, second.body]).toEqual(["one two three", "one two three"]);
  });

  test.each(["outside", "inside"])(
    "an end %s that writes, as older wrappers have it, doubles nothing",
    async (place) => {
      const writes = onExpress((_req, res, next) => {
        const { end } = res;
        res.end = function endInTwo(this: Response, chunk?: unknown) {
          if (chunk !== undefined) this.write(chunk);
          return Reflect.apply(end, this, []);
        } as typeof res.end;
        next();
      });
      const once = await open((res) => res.status(201).type("text").end("placed"), {
        [place]: [writes],
      });
      const [first, second] = await once.twice();
      expect([first.body, second.body]).toEqual(["placed", "placed"]);
      expect((await once.records()).join()).toMatch(/"b":6\}placed$/);
    },
  );

  test.each([
    ["a session", sessionLayer(30), "placed and more"],
    ["compression", compressionLayer(), "placed"],
  ])(
    "what is written while %s holds back the end may be sent, so nothing is repeated",
    async (_who, layer, sent) => {
      const answering = (res: Response) => {
        res.writeHead(201, { "content-type": "text/plain" }).end("placed");
        res.write(" and more");
      };
      const once = await open(answering, { outside: [layer] });
      const headers = { "accept-encoding": "gzip" };
      const [first, second] = await once.twice({ key: orderKey, headers });
      const isZipped = first.headers["content-encoding"] === "gzip";
      const body = isZipped ? `${gunzipSync(Buffer.from(first.body, "latin1"))}` : first.body;
      expect([body, second.status, once.runs]).toEqual([sent, 409, 1]);
    },
  );

  test("a head that inner middleware changes, as on-headers does, is repeated as it was", async () => {
    const changing = onExpress((_req, res, next) => {
      const { writeHead } = res;
      res.writeHead = (() => {
        res.removeHeader("link");
        return Reflect.apply(writeHead, res.setHeader("location", "/inner"), [202]);
      }) as typeof writeHead;
      next();
    });
    const once = await open((res) => res.status(201).links({ next: "/a" }).end("placed"), {
      inside: [changing],
    });
    const [first, second] = await once.twice();
    expect(first).toMatchObject({ status: 202, headers: { location: "/inner" } });
    expect(unmarked(second)).toEqual(unmarked(first));
  });

  test("a head whose hook fails is no answer", async () => {
    const handler = (turn: Turn, run: number) =>
      run > 1 ? turn.fail(new Error("again")) : turn.answer(201, { run });
    const once = await openOnce({ framework, inside: [failingHook], handler });
    for (const run of [1, 2]) {
      expect((await once.submit({ key: orderKey })).status).toBe(500);
      await once.whenKept(0);
      expect(once.runs).toBe(run);
    }
  });

  const failing = (answer: (res: Response) => void, inside: readonly Layer[] = []) =>
    openOnce({
      framework,
      inside,
      handler: async (turn, run) => {
        if (run > 1) return turn.answer(201, { run });
        answer(turn.express?.res as Response);
        throw new Error("theirs");
      },
    });

  test("a head that has not left is no answer", async () => {
    const once = await failing((res) => res.writeHead(201));
    await once.submit({ key: orderKey }).catch(() => {});
    await once.shop.keyIsGone();
    expect((await once.submit({ key: orderKey })).body).toBe('{"run":2}');
  });

  const endsLater = layerThatWaits(async (_req, res) => {
    const { end } = res;
    res.end = (() => {
      res.flushHeaders();
      setTimeout(() => Reflect.apply(end, res, []), 20);
      return res;
    }) as typeof end;
  });

  test.each<[how: string, answer: (res: Response) => void]>([
    ["the handler flushes", (res) => res.flushHeaders()],
    ["inner middleware flushes and ends later", (res) => void res.end()],
  ])("a 204 that %s is whole, whatever fails behind it", async (_how, answer) => {
    const once = await failing((res) => answer(res.status(204)), [endsLater]);
    expect((await once.submit({ key: orderKey })).status).toBe(204);
    await once.whenKept(1);
    expect((await once.submit({ key: orderKey })).status).toBe(204);
    expect(once.runs).toBe(1);
  });

  test("an end that failed does not make a whole body of what was written", async () => {
    const once = await failing((res) => {
      res.write("half");
      expect(() => res.end(42 as never)).toThrow(TypeError);
    });
    await once.submit({ key: orderKey }).catch(() => {});
    await once.whenKept(1);
    await isUnavailable(once);
  });
});

const ofKoa: Record<string, (ctx: Context) => unknown> = {
  "JSON in another charset than UTF-8": (ctx) => {
    ctx.type = "application/json; charset=iso-8859-1";
    ctx.body = Buffer.from('{"name":"José"}', "latin1");
  },
  "null as a string": (ctx) => {
    ctx.type = "json";
    ctx.body = "null";
  },
  "a view of bytes, which Koa takes for an object": (ctx) => {
    ctx.body = new Uint8Array([1, 2, 3]);
  },
  "null with a type": (ctx) => {
    ctx.body = null;
    ctx.status = 201;
    ctx.type = "text";
  },
  "null, and then an object": (ctx) => {
    ctx.body = null;
    ctx.status = 201;
    ctx.body = { order: 7 };
  },
  "the response by hand, when the handler has returned": (ctx) => {
    ctx.respond = false;
    setTimeout(() => ctx.res.writeHead(201, { "content-type": "text/csv" }).end("placed"), 20);
  },
  "a first part by hand, and the rest as the body": (ctx) => {
    ctx.status = 201;
    ctx.type = "text";
    ctx.res.write("one ");
    ctx.body = "two";
  },
};

/** What a stream brings is not seen. */
const streams: Record<string, () => unknown> = {
  "a file": () => createReadStream(file),
  "10 MB": () => Readable.from(Array.from({ length: 160 }, () => Buffer.alloc(65_536, "x"))),
  "a web stream": () => Readable.toWeb(Readable.from([Buffer.from("one ")])),
  "a Blob": () => new Blob(["one"]),
};

describe.each(koas)("$name", (framework: Framework) => {
  const open = (answering: (ctx: Context, run: number) => unknown, options: object = {}) =>
    openOnce({
      framework,
      handler: ({ ctx }, run) => answering(ctx as Context, run),
      ...options,
    });
  const placing = (body: unknown) => (ctx: Context) => {
    ctx.status = 201;
    if (body !== undefined) ctx.body = body;
  };

  test.each(Object.entries(ofKoa))("%s is repeated byte for byte", async (_kind, answering) => {
    const once = await open(answering);
    const [first, second] = await once.twice();
    expect(second.headers["idempotent-replayed"]).toBe("true");
    expect(unmarked(second)).toEqual(unmarked(first));
    expect(once.runs).toBe(1);
  });

  // Koa 2 knows no bodies of the web.
  const streamsHere = Object.entries(streams).slice(0, framework.major === 2 ? 2 : 4);
  test.each(streamsHere)("%s as the body is sent as it is, and not run again", async (_, body) => {
    const answering = (ctx: Context) => placing(body())(ctx);
    const once = await open(answering);
    const bare = await open(answering, { bare: true });
    const first = await once.submit({ key: orderKey });
    expect(first).toEqual(await bare.submit());
    await once.whenKept(1);
    await isUnavailable(once);
  });

  test("an order whose client has left before its stream is not run again", async () => {
    const left = gate();
    const once = await open(async (ctx) => {
      ctx.res.once("close", left.open);
      await left.opened;
      placing(createReadStream(file))(ctx);
    });
    const call = await once.start({ key: orderKey });
    call.abort();
    await once.whenKept(1);
    await isUnavailable(once);
  });

  test.each<[when: string, close: (source: Readable) => unknown]>([
    ["closes before its first byte", (source) => void setTimeout(() => source.destroy(), 50)],
    [
      "is closed already",
      async (source) => {
        source.destroy();
        await sleep(20);
      },
    ],
  ])("a body stream that %s is no answer, and frees its user", async (_when, close) => {
    const once = await open((ctx, run) => {
      if (run > 1) return placing({ run })(ctx);
      const source = new PassThrough();
      ctx.body = source;
      return close(source);
    });
    // Koa 2 leaves the response open.
    const call = once.begin({ key: orderKey });
    await until(() => once.runs === 1, { what: "the order" });
    await once.shop.keyIsGone();
    call.abort();
    expect((await once.submit({ key: orderKey })).body).toBe('{"run":2}');
  });

  const wrapping = (kinds: string[] = []) =>
    onKoa(async (ctx, next) => {
      await next();
      kinds.push(typeof ctx.body);
      // It changes the object of the handler, and takes another in its place.
      if (typeof ctx.body === "object") Object.assign(ctx.body as object, { seen: true });
      ctx.body = { data: ctx.body ?? null };
    });

  test.each([
    [{ order: 7 }, '{"data":{"order":7,"seen":true}}'],
    ["placed", '{"data":"placed"}'],
    [undefined, '{"data":null}'],
  ])("what outer middleware makes of %j it makes of the replay, too", async (body, sent) => {
    const kinds: string[] = [];
    const once = await open(placing(body), { outside: [wrapping(kinds)] });
    const [first, second] = await once.twice();
    expect(first.body).toBe(sent);
    expect(unmarked(second)).toEqual(unmarked(first));
    expect((await once.records())[0]).not.toMatch(/data|seen/);
    expect(kinds).toEqual([typeof body, typeof body]);
  });

  test("a body behind a flushed head is repeated as the handler set it", async () => {
    const once = await open(
      (ctx) => {
        ctx.status = 201;
        ctx.type = "text";
        ctx.flushHeaders();
        ctx.body = "placed";
      },
      { outside: [wrapping()] },
    );
    const [first, second] = await once.twice();
    expect([first.body, second.body]).toEqual(['{"data":"placed"}', '{"data":"placed"}']);
  });

  test("an object that is changed after it was answered is repeated as it was", async () => {
    const order = { run: 1 };
    const once = await open((ctx) => {
      placing(order)(ctx);
      setTimeout(() => {
        order.run = 99;
      });
    });
    const [, second] = await once.twice();
    expect(second.body).toBe('{"run":1}');
  });

  test("an answer whose hook fails is repeated as the handler gave it", async () => {
    const once = await open(placing({ order: 7 }), { inside: [failingHook] });
    const [first, second] = await once.twice();
    expect([first.status, second.status, second.body]).toEqual([500, 201, '{"order":7}']);
    expect(once.runs).toBe(1);
  });

  test("a body that JSON cannot hold is no answer, and the order is placed", async () => {
    const once = await open(placing({ big: 1n }));
    expect((await once.submit({ key: orderKey })).status).toBe(500);
    await once.whenKept(1);
    await isUnavailable(once);
  });

  test("a body that JSON cannot hold of a 422 is no answer, and a retry runs", async () => {
    const once = await open((ctx, run) => {
      placing(run === 1 ? { big: 1n } : { run })(ctx);
      if (run === 1) ctx.status = 422;
    });
    expect((await once.submit({ key: orderKey })).status).toBe(500);
    await once.whenKept(0);
    expect((await once.submit({ key: orderKey })).body).toBe('{"run":2}');
  });

  test("a body that middleware for Node encodes behind Koa's back is not run again", async () => {
    const middleware = compression({ threshold: 0 });
    const behindKoa = onKoa(async ({ req, res }, next) => {
      await new Promise((done) => middleware(req as never, res as never, done));
      await next();
    });
    const once = await open(placing("placed ".repeat(100)), { inside: [behindKoa] });
    const headers = { "accept-encoding": "gzip" };
    const first = await once.submit({ key: orderKey, headers });
    expect(first.headers["content-encoding"]).toBe("gzip");
    await once.whenKept(1);
    await isUnavailable(once, { headers });
  });

  test("a replay without a body is none whatever type outer middleware has set", async () => {
    const typed = onKoa((ctx, next) => {
      ctx.type = "json";
      return next();
    });
    const once = await open(
      (ctx) => {
        ctx.redirect("/orders/7");
        ctx.status = 303;
        ctx.body = Readable.from(["moved"]);
      },
      { outside: [typed] },
    );
    const [, second] = await once.twice();
    const { location } = second.headers;
    expect([second.status, location, second.body]).toEqual([303, "/orders/7", ""]);
  });
});
