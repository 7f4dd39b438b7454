import type { ServerResponse } from "node:http";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { gunzipSync } from "node:zlib";
import compression from "compression";
import { describe, expect, test } from "vitest";
import { until } from "../support/until.ts";
import { expresses, type Framework, hasLayers, koas, newestOnBoth } from "./frameworks.ts";
import type { Reply } from "./http-client.ts";
import { compressionLayer, layerThatWaits, onKoa, sessionLayer } from "./layers.ts";
import { codeOf, openOnce, orderKey, unmarked } from "./once-shop.ts";
import type { Layer, Turn } from "./turn.ts";

/** What middleware makes of the head of others' answers. */
interface Change {
  readonly status?: number;
  readonly headers: Readonly<Record<string, string>>;
}

const byInner: Change = {
  status: 202,
  headers: { location: "/inner", "cache-control": "private" },
};
const byOuter: Change = { headers: { link: "</outer>", "content-language": "outer" } };

function change(res: ServerResponse, { headers, status }: Change): void {
  if (res.headersSent) return;
  if (status !== undefined) res.statusCode = status;
  for (const [name, value] of Object.entries(headers)) res.setHeader(name, value);
}

/** How middleware gets at a head that is not written yet. */
const means: Readonly<Record<string, (res: ServerResponse, by: Change) => void>> = {
  "as on-headers does": (res, by) => {
    const { writeHead } = res;
    let hasFired = false;
    res.writeHead = function writeHeadOnce(status: number, ...rest: never[]) {
      res.statusCode = status;
      for (const [name, value] of Object.entries(rest[0] ?? {})) {
        res.setHeader(name, `${value}`);
      }
      if (!hasFired) change(res, by);
      hasFired = true;
      return Reflect.apply(writeHead, res, [res.statusCode]);
    } as typeof writeHead;
  },
  "by arguments of writeHead": (res, by) => {
    const { writeHead } = res;
    res.writeHead = function writeMore(status: number, ...rest: never[]) {
      const headers = Object.assign({}, rest[0], by.headers);
      return Reflect.apply(writeHead, res, [by.status ?? status, headers]);
    } as typeof writeHead;
  },
  "in an end of its own": (res, by) => {
    const { end } = res;
    res.end = function endChanged(...args: never[]) {
      change(res, by);
      return Reflect.apply(end, res, args);
    } as typeof end;
  },
  "in an end that waits": (res, by) => {
    const { end } = res;
    res.end = function endLater(...args: never[]) {
      setTimeout(() => {
        change(res, by);
        Reflect.apply(end, res, args);
      }, 5);
      return res;
    } as typeof end;
  },
};

const layersOf = (by: Change): [name: string, layer: () => Layer | undefined][] => [
  ["not at all", () => undefined],
  ...Object.entries(means).map(([name, way]): [string, () => Layer] => [
    name,
    () => layerThatWaits(async (_req, res) => way(res, by)),
  ]),
];

/** Libraries that do so; those for Koa change the context instead. */
const libraries: [name: string, layer: () => Layer][] = [
  ["by compression", compressionLayer],
  ["by a session", () => sessionLayer(5)],
];

const stacksOf = ({ family }: Framework) => {
  const here = family === "express" ? libraries : [];
  // Koa calls `end` outside of the guard.
  const inside = layersOf(byInner).filter(
    ([name]) => family === "express" || !name.includes("end"),
  );
  return [...inside, ...here].flatMap(([inner, inside]) =>
    [...layersOf(byOuter), ...here].map(([outer, outside]) => ({ inner, outer, inside, outside })),
  );
};

const order = "placed ".repeat(100);

/** The ways in which a handler makes Node.js write the head. */
const waysOnExpress: Readonly<Record<string, (turn: Turn) => unknown>> = {
  "res.json": (turn) => turn.answer(201, { order }),
  "res.end": ({ res }) => head(res).end(order),
  "res.write": ({ res }) => {
    head(res).write(order);
    res.end(order);
  },
  "res.flushHeaders": ({ res }) => {
    head(res).flushHeaders();
    res.end(order);
  },
  "res.writeHead": ({ res }) => {
    res.writeHead(201, { "content-type": "text/plain", etag: '"7"' }).end(order);
  },
  pipeline: ({ res }) => pipeline(Readable.from([order, order]), head(res)),
};

const waysOnKoa: Readonly<Record<string, (turn: Turn) => unknown>> = {
  "an object": (turn) => turn.answer(201, { order }),
  "a text": (turn) => turn.answer(201, order, "text/plain"),
  "no body": (turn) => turn.answer(201, null),
  "a text behind the head": (turn) => {
    turn.answer(201, null, "text/plain");
    turn.ctx?.flushHeaders();
    if (turn.ctx) turn.ctx.body = order;
  },
  "a text by hand": (turn) => head(turn.byHand()).end(order),
  "a head and a text by hand": (turn) =>
    turn.byHand().writeHead(201, { "content-type": "text/plain" }).end(order),
};

function head(res: ServerResponse): ServerResponse {
  res.statusCode = 201;
  res.setHeader("content-type", "text/plain");
  return res;
}

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

/** Without what outer middleware adds: it may do so to a repeat, and not to a head by hand. */
function shown(reply: Reply): Reply {
  const { body, headers, status } = unmarked(reply);
  const isZipped = headers["content-encoding"] === "gzip";
  const ofOuter = ["set-cookie", ...Object.keys(byOuter.headers)];
  const others = Object.entries(headers).filter(([name]) => !ofOuter.includes(name));
  return {
    status,
    headers: Object.fromEntries(others),
    body: isZipped ? gunzipSync(Buffer.from(body, "latin1")).toString() : body,
  };
}

describe.each(newestOnBoth.filter(hasLayers))("$name", (framework: Framework) => {
  const ways = framework.family === "koa" ? waysOnKoa : waysOnExpress;
  const handler = (turn: Turn) => ways[String(turn.req.headers["x-way"])]?.(turn);

  test.each(stacksOf(framework))(
    "a head that is changed $inner inside and $outer outside is repeated as it was",
    async ({ inside, outside }) => {
      const layers = {
        inside: [inside()].filter((layer) => layer !== undefined),
        outside: [outside()].filter((layer) => layer !== undefined),
      };
      const once = await openOnce({ framework, handler, ...layers });
      const bare = await openOnce({ framework, handler, ...layers, bare: true });
      await Promise.all(
        Object.keys(ways).map(async (way, i) => {
          const user = `${once.shop.user}-${i}`;
          const headers = { "x-way": way, "accept-encoding": "gzip" };
          const submit = { key: orderKey, user, headers };
          const first = await once.submit(submit);
          expect(unmarked(first), way).toEqual(unmarked(await bare.submit(submit)));
          const keys = () => once.shop.redis.keys(`*${user}*`);
          const isKept = async () => (await keys()).every((key) => key.startsWith("{"));
          await until(isKept, { what: "the order to be over" });
          const [key = ""] = await keys();
          expect(await once.shop.redis.get(key), way).not.toContain("outer");
          const second = await once.submit(submit);
          expect(shown(second), way).toEqual(shown(first));
        }),
      );
      expect(once.shop.errors).toEqual([]);
    },
  );
});

describe.each(expresses.filter(({ seesWork }) => seesWork))("$name", (framework: Framework) => {
  test("a head that is written twice is repeated as it was written first", async () => {
    const once = await openOnce({
      framework,
      handler: ({ res }) => {
        res.writeHead(201, { location: "/first" });
        expect(() => res.writeHead(202, { location: "/second" })).toThrow(
          "headers after they are sent",
        );
        res.end(order);
      },
    });
    const [first, second] = await once.twice();
    expect(first).toMatchObject({ status: 201, headers: { location: "/first" }, body: order });
    expect(unmarked(second)).toEqual(unmarked(first));
  });

  test("a head whose hook fails is no answer", async () => {
    const once = await openOnce({
      framework,
      inside: [failingHook],
      handler: (turn, run) =>
        run > 1 ? turn.fail(new Error("again")) : turn.answer(201, { order }),
    });
    for (const run of [1, 2]) {
      expect((await once.submit({ key: orderKey })).status).toBe(500);
      await once.whenKept(0);
      expect(once.runs).toBe(run);
    }
  });
});

describe.each(koas)("$name", (framework: Framework) => {
  test("an answer whose hook fails is repeated as the handler gave it", async () => {
    const once = await openOnce({
      framework,
      inside: [failingHook],
      handler: (turn) => turn.answer(201, { order }),
    });
    const [first, second] = await once.twice();
    expect([first.status, second.status, second.body]).toEqual([500, 201, `{"order":"${order}"}`]);
    expect(once.runs).toBe(1);
  });

  test("a body behind a flushed head is repeated as the handler set it", async () => {
    const envelope = onKoa(async (ctx, next) => {
      await next();
      ctx.body = { data: ctx.body };
    });
    const once = await openOnce({
      framework,
      outside: [envelope],
      handler: (turn) => {
        turn.answer(201, null, "text/plain");
        turn.ctx?.flushHeaders();
        if (turn.ctx) turn.ctx.body = "placed";
      },
    });
    const [first, second] = await once.twice();
    expect(first.body).toBe('{"data":"placed"}');
    expect(second.body).toBe(first.body);
  });

  test("a body that middleware for Node encodes behind Koa's back is not run again", async () => {
    const middleware = compression({ threshold: 0 });
    const once = await openOnce({
      framework,
      inside: [
        onKoa(async ({ req, res }, next) => {
          await new Promise((done) => middleware(req as never, res as never, done));
          await next();
        }),
      ],
      handler: (turn) => turn.answer(201, order, "text/plain"),
    });
    const headers = { "accept-encoding": "gzip" };
    const [first, second] = await once.twice({ key: orderKey, headers });
    expect(first.headers["content-encoding"]).toBe("gzip");
    expect([second.status, codeOf(second)]).toEqual([409, "idempotency_answer_unavailable"]);
  });
});
