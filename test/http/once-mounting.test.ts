import { randomUUID } from "node:crypto";
import { createServer, type IncomingMessage, type Server } from "node:http";
import { brotliCompressSync, deflateSync, gunzipSync, gzipSync } from "node:zlib";
import express5, { type Express, type Request, type Response } from "express";
import express4 from "express4";
import { afterEach, describe, expect, test } from "vitest";
import { submitGuard } from "../../src/express/index.ts";
import { MemoryStore, RedisStore, SubmitLock } from "../../src/index.ts";
import { ioredis6 } from "../support/clients.ts";
import { closeLocks, openLock } from "../support/locks.ts";
import { sharedRedisPort } from "../support/redis-server.ts";
import { expresses, type Framework, hasLayers, newest } from "./frameworks.ts";
import { listen, type Reply } from "./http-client.ts";
import {
  anotherCopy,
  compressionLayer,
  guardLayer,
  layerThatWaits,
  sessionLayer,
} from "./layers.ts";
import { codeOf, onAll, openOnce, orderKey, unmarked } from "./once-shop.ts";
import { patientTimes, sharedRedis } from "./shop.ts";
import type { Layer, Turn } from "./turn.ts";

describe("once mounts", () => {
  afterEach(closeLocks);

  const redis = () => ioredis6.connect(sharedRedisPort());
  const openPlain = () => openLock({ store: new RedisStore(sharedRedis()), ...patientTimes });

  describe.each(onAll)("rule 13: mounts with idempotency, on $name", (framework: Framework) => {
    // On Hono nothing is between a guard and its handler.
    const hasInside = framework.family !== "fetch";
    const places = hasInside ? (["inside", "outside"] as const) : (["outside"] as const);

    test.runIf(hasInside)(
      "a plain guard further in borrows, and the outer one keeps the answer",
      async () => {
        const submissions: unknown[] = [];
        const once = await openOnce({
          framework,
          inside: [guardLayer(openPlain())],
          handler: (turn, run) => {
            submissions.push(turn.submission?.id);
            turn.answer(201, { run });
          },
        });
        const [first, second] = await once.twice();
        expect([first.status, first.body]).toEqual([201, '{"run":1}']);
        expect(unmarked(second)).toEqual(unmarked(first));
        expect(submissions).toEqual([expect.stringMatching(/^[\w-]{22}$/)]);
        expect(await once.records()).toHaveLength(1);
      },
    );

    test("a plain guard further out is an error, because nothing would be kept", async () => {
      const once = await openOnce({ framework, outside: [guardLayer(openPlain())] });
      const reply = await once.submit({ key: orderKey });
      expect([reply.status, once.runs]).toEqual([500, 0]);
      expect(once.shop.errors[0]).toMatchObject({
        code: "SUBMIT_LOCK_INVALID_OPTION",
        message: expect.stringContaining("outermost"),
      });
      await once.whenKept(0);
    });

    test.each(places)(
      "a guard of another copy of the package, %s, is contended, and nothing runs or is kept",
      async (place) => {
        const copy = await anotherCopy();
        const store = new copy.Store(redis());
        const lock = new copy.SubmitLock({ store, ...patientTimes });
        const once = await openOnce({ framework, [place]: [guardLayer(lock, copy)] });
        const reply = await once.submit({ key: orderKey });
        expect([reply.status, codeOf(reply)]).toEqual([409, "submit_contended"]);
        expect(once.runs).toBe(0);
        await once.whenKept(0);
        await lock.close();
      },
    );

    test("two guards with idempotency on one request are an error, unless they are one", async () => {
      const lock = openPlain();
      const other = guardLayer(lock, undefined, { idempotency: {} });
      const once = await openOnce({ framework, outside: [other] });
      expect((await once.submit({ key: orderKey })).status).toBe(500);
      expect(once.runs).toBe(0);
    });
  });
});

const order = { order: 7, note: "x".repeat(2_000) };
const place = (turn: Turn) => turn.answer(201, order);

const gzip = { "accept-encoding": "gzip" };
const plain = { "accept-encoding": "identity" };

/** What a client shows of a reply. */
function shown({ body, headers }: Reply): unknown {
  const bytes = Buffer.from(body, "latin1");
  return JSON.parse(
    (headers["content-encoding"] === "gzip" ? gunzipSync(bytes) : bytes).toString(),
  );
}

/** CORS, as middleware sets it for each request. */
const cors = layerThatWaits(async (req, res) => {
  res.setHeader("access-control-allow-origin", String(req.headers.origin));
  res.setHeader("vary", "Origin");
});

/** The two places of a layer. */
const places: [string, (layer: Layer) => { outside?: Layer[]; inside?: Layer[] }][] = [
  ["outside", (layer) => ({ outside: [layer] })],
  ["inside", (layer) => ({ inside: [layer] })],
];

describe.each(onAll)("$name", (framework: Framework) => {
  // Hooks of Fastify and middleware of Hono are around a guard, and never inside.
  const placesHere = hasLayers(framework) ? places : places.slice(0, 1);

  test.each(placesHere)(
    "with a session %s a replay has no cookie of the first answer",
    async (_where, at) => {
      const session = sessionLayer(10);
      const once = await openOnce({ framework, handler: place, ...at(session) });
      const [first, second] = await once.twice();
      expect(String(first.headers["set-cookie"])).toContain("the-session");
      expect(shown(second)).toEqual(order);
      expect((await once.records()).join()).not.toMatch(/cookie|the-session/i);
      // Inside, nothing that a session does is run again; outside, it is the retry's own session.
      const isOutside = _where === "outside";
      expect(second.headers["set-cookie"] !== undefined).toBe(isOutside);
      expect(session.saved).toHaveLength(isOutside ? 2 : 1);
      expect(once.runs).toBe(1);
    },
  );

  test("with CORS outside a replay has the headers of its own origin", async () => {
    const once = await openOnce({ framework, handler: place, outside: [cors] });
    const first = await once.submit({ key: orderKey, headers: { origin: "https://one.example" } });
    await once.whenKept(1);
    const second = await once.submit({ key: orderKey, headers: { origin: "https://two.example" } });
    expect(first.headers["access-control-allow-origin"]).toBe("https://one.example");
    expect(second.headers["access-control-allow-origin"]).toBe("https://two.example");
    expect(shown(second)).toEqual(order);
  });

  test("compression outside sends each what it accepts", async () => {
    const once = await openOnce({ framework, handler: place, outside: [compressionLayer()] });
    for (const headers of [gzip, plain, gzip]) {
      const reply = await once.submit({ key: orderKey, headers });
      await once.whenKept(1);
      expect(reply.headers["content-encoding"]).toBe(headers === gzip ? "gzip" : undefined);
      expect(shown(reply)).toEqual(order);
    }
    expect((await once.records()).join()).not.toContain("content-encoding");
    expect((await once.records()).join()).toContain('"order":7');
    expect(once.runs).toBe(1);
  });
});

describe.each(expresses)("$name", (framework: Framework) => {
  test.each([
    [gzip, gzip, 201],
    [gzip, plain, 409],
    [gzip, {}, 409],
    [plain, gzip, 201],
  ])("compression inside is kept as it is: %o, then %o is %i", async (one, other, status) => {
    const once = await openOnce({ framework, handler: place, inside: [compressionLayer()] });
    const first = await once.submit({ key: orderKey, headers: one });
    await once.whenKept(1);
    const second = await once.submit({ key: orderKey, headers: other });
    expect(second.status).toBe(status);
    expect(shown(first)).toEqual(order);
    if (status === 201) expect(unmarked(second)).toEqual(unmarked(first));
    else expect(codeOf(second)).toBe("idempotency_answer_unavailable");
    expect(once.runs).toBe(1);
  });
});

const text = "placed ".repeat(100);
const accepted = ["gzip, deflate, br, zstd", "*", "GZIP;q=0.5, br;q=0.1, deflate, zstd"];
const refused = ["identity", "snappy", "gzip;q=0, br;q=0.000, deflate;q=0, zstd;q=0", "*;q=0"];

/** A body that the handler itself has encoded, and the codings of clients that cannot read it. */
const encoded: [coding: string, body: Buffer, refused: string[]][] = [
  ["gzip", gzipSync(text), refused],
  ["x-gzip", gzipSync(text), refused],
  ["deflate", deflateSync(text), refused],
  ["br", brotliCompressSync(text), refused],
  ["gzip, br", brotliCompressSync(gzipSync(text)), [...refused, "gzip", "br"]],
  ["zstd", Buffer.from(text), refused],
  ["identity", Buffer.from(text), []],
];

describe.each(newest.filter(hasLayers))("$name", (framework: Framework) => {
  test.each(encoded)(
    "a body in the coding %s is repeated to a client that accepts it, and to no other",
    async (coding, body, unreadable) => {
      const once = await openOnce({
        framework,
        handler: (turn) => {
          turn.res.setHeader("content-encoding", coding);
          turn.res.setHeader("etag", '"7"');
          if (turn.ctx) Object.assign(turn.ctx, { status: 201, type: "text", body });
          else turn.express?.res.status(201).type("text").send(body);
        },
      });
      const first = await once.submit({ key: orderKey });
      await once.whenKept(1);
      const accepts = (value: string) =>
        once.submit({ key: orderKey, headers: { "accept-encoding": value } });
      for (const value of [...accepted, ...(unreadable.length > 0 ? [] : refused)]) {
        expect(unmarked(await accepts(value))).toEqual(unmarked(first));
      }
      for (const value of unreadable) {
        const reply = await accepts(value);
        expect([reply.status, codeOf(reply)]).toEqual([409, "idempotency_answer_unavailable"]);
      }
      expect(once.runs).toBe(1);
    },
  );
});

describe("once sub apps", () => {
  const servers: Server[] = [];
  afterEach(async () => {
    for (const server of servers.splice(0)) {
      server.closeAllConnections();
      server.close();
    }
    await closeLocks();
  });

  const openGuard = (idempotency: object | undefined) =>
    submitGuard({
      lock: openLock({
        store: new RedisStore(ioredis6.connect(sharedRedisPort())),
        ...patientTimes,
      }),
      userId: (req) => req.get("x-user"),
      idempotency: idempotency as never,
    });

  /** Serves the application, and submits to a path as one user, with one key for all. */
  async function serve(app: Express) {
    const server = createServer(app);
    servers.push(server);
    const port = await listen(server);
    const headers = { "x-user": randomUUID(), "idempotency-key": randomUUID() };
    return async (path: string) => {
      const reply = await fetch(`http://127.0.0.1:${port}${path}`, { method: "POST", headers });
      const { status } = reply;
      const replayed = reply.headers.get("idempotent-replayed");
      return {
        status,
        replayed,
        location: reply.headers.get("location"),
        body: await reply.text(),
      };
    };
  }

  const libraries: Record<string, typeof express5> = {
    "Express 4": express4,
    "Express 5": express5,
  };

  describe.each(Object.keys(libraries))("idempotency and applications of %s", (name) => {
    const express = libraries[name] as typeof express5;

    const handlerOf = () => {
      let runs = 0;
      return (_req: Request, res: Response) => {
        res.writeHead(201, { Location: "/orders/7" }).write("run ");
        res.end(`${++runs}`);
      };
    };

    /** A second submission gets the first one's answer, and nothing runs again. */
    async function expectOnce(app: Express, path: string): Promise<void> {
      const submit = await serve(app);
      const first = await submit(path);
      expect([first.status, first.location, first.replayed]).toEqual([201, "/orders/7", null]);
      expect(await submit(path)).toEqual({ ...first, replayed: "true" });
    }

    test("a mounted application behind the guard", async () => {
      const sub = express();
      sub.post("/orders", handlerOf());
      const app = express();
      app.use("/shop", openGuard({}), sub);
      await expectOnce(app, "/shop/orders");
    });

    test("two of them, one in the other, mounted when requests have come already", async () => {
      const inner = express();
      inner.post("/orders", openGuard({}), handlerOf());
      await expectOnce(inner, "/orders");
      const outer = express();
      outer.use("/inner", inner);
      const app = express();
      app.use("/outer", openGuard(undefined), outer);
      app.post("/orders", openGuard({}), handlerOf());
      await expectOnce(app, "/orders");
    });

    test("a guard in a mounted application, and the handler behind it", async () => {
      const sub = express();
      sub.use(openGuard({}));
      const app = express();
      app.use(sub);
      app.post("/orders", handlerOf());
      await expectOnce(app, "/orders");
    });

    test("an application that is called and not mounted", async () => {
      const other = express();
      other.post("/orders", handlerOf());
      const app = express();
      app.use(openGuard({}), (req, res, next) => other(req, res, next));
      await expectOnce(app, "/orders");
    });

    test("no prototype of an application is changed", async () => {
      const app = express();
      const base = Object.getPrototypeOf(app.response);
      app.post("/orders", openGuard({}), (_req, res) => void res.json({}));
      const submit = await serve(app);
      await submit("/orders");
      expect(Object.getPrototypeOf(app.response)).toBe(base);
    });
  });
});

test("without Express, the path of Node's own request is a part of the submission", async () => {
  const lock = new SubmitLock({ store: new MemoryStore() });
  const guard = submitGuard<IncomingMessage>({ lock, userId: () => "42", idempotency: {} });
  const place = guard.protect(async (req, res) => {
    res.end(req.url);
  });
  const server = createServer((req, res) => place(req as never, res as never, () => res.end()));
  const url = `http://127.0.0.1:${await listen(server)}`;
  for (const path of ["/orders", "/refunds", "/orders"]) {
    const sent = { method: "POST", headers: { "idempotency-key": "a-key" } };
    expect(await (await fetch(url + path, sent)).text()).toBe(path);
  }
  server.close();
  await lock.close();
});
