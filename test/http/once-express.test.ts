import { createReadStream } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { gunzipSync } from "node:zlib";
import type { Request, Response } from "express";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { expresses, type Framework } from "./frameworks.ts";
import { compressionLayer, onExpress, sessionLayer } from "./layers.ts";
import { codeOf, openOnce, orderKey, unmarked } from "./once-shop.ts";

let folder = "";
let file = "";
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "submit-lock-answers-"));
  file = join(folder, "receipt.txt");
  await writeFile(file, "Thank you for your order.\n".repeat(100));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

type Answering = (res: Response, req: Request) => unknown;

const everyByte = Buffer.from(Array.from({ length: 256 }, (_, byte) => byte));

/** Every way to answer, and what of the answer has to be there on the replay. */
const ways: Record<string, Answering> = {
  "res.json": (res) => res.status(201).json({ order: 7, note: "für Ärzte 🛒" }),
  "res.json of null": (res) => res.json(null),
  "res.jsonp": (res) => res.jsonp({ order: 7 }),
  "res.send of a string": (res) => res.status(201).send("<h1>Placed</h1>"),
  "res.send of an object": (res) => res.send({ order: 7 }),
  "res.send of bytes": (res) => res.type("application/pdf").send(everyByte),
  "res.send of nothing": (res) => res.status(201).send(),
  "res.sendStatus": (res) => res.sendStatus(202),
  "res.end": (res) => res.status(201).end(),
  "res.end of a string in another encoding": (res) => res.status(201).end("6f6b", "hex"),
  "res.end of bytes": (res) => res.status(201).type("bin").end(everyByte),
  "res.write three times": (res) => {
    res.status(201).type("text").write("one ");
    res.write(Buffer.from("two "));
    res.write("dGhyZWU=", "base64");
    res.end(" and an end");
  },
  "bytes that the handler uses again": async (res) => {
    const bytes = Buffer.from("first ");
    await new Promise<void>((written) => res.status(201).write(bytes, () => written()));
    bytes.fill("x");
    res.end("second");
  },
  "res.writeHead with an object": (res) => {
    res.writeHead(201, { "Content-Type": "text/csv", Location: "/orders/7" });
    res.end("7");
  },
  "res.writeHead with a reason and an object": (res) => {
    res.writeHead(201, "Placed", { "content-type": "text/csv" }).end("7");
  },
  "res.writeHead with a list": (res) => {
    res.writeHead(201, ["Content-Type", "text/csv", "Link", "</orders/7>"] as never).end("7");
  },
  "res.writeHead over headers that were set": (res) => {
    res.setHeader("content-type", "text/plain");
    res.setHeader("etag", '"7"');
    res.writeHead(201, { "Content-Type": "text/csv" }).end("7");
  },
  "res.flushHeaders": (res) => {
    res.status(201).type("text").flushHeaders();
    // Too late to be sent, and so to be kept.
    res.statusCode = 299;
    res.end("7");
  },
  "res.redirect": (res) => res.redirect(303, "/orders/7"),
  "a location without a body": (res) => res.status(201).location("/orders/7").end(),
  "res.attachment": (res) => res.attachment("receipt.csv").send("7"),
  "res.links, an etag and a cache rule": (res) =>
    res.links({ self: "/orders/7" }).set("cache-control", "private").set("etag", '"7"').json({}),
  "res.format": (res) => res.format({ "application/json": () => res.json({ order: 7 }) }),
  "a status without a body": (res) => res.status(204).send("never sent"),
  "early hints": (res) => {
    res.writeProcessing();
    res.writeEarlyHints({ link: "</style.css>; rel=preload; as=style" });
    res.status(201).json({ order: 7 });
  },
  "res.render": (res) => {
    const { app } = res;
    app.engine("txt", (_path, options, done) =>
      done(null, `<p>${Reflect.get(options, "order")}</p>`),
    );
    res.status(201).render(file, { order: 7 });
  },
  "res.sendFile": (res) => new Promise((sent) => res.sendFile(file, sent)),
  "res.download": (res) => new Promise((sent) => res.download(file, "thanks.txt", sent)),
  "a pipe": (res) =>
    new Promise<void>((sent) => {
      res.status(201).once("finish", sent);
      createReadStream(file).pipe(res);
    }),
  "a pipeline": (res) => pipeline(Readable.from(["one ", "two"]), res.status(201).type("text")),
  "invalid UTF-8": (res) =>
    res
      .status(201)
      .type("text")
      .send(Buffer.from([0x61, 0xc3, 0x28, 0xff])),
  "a byte order mark": (res) => res.status(201).type("text").send("\ufeffplaced"),
  "half a surrogate pair": (res) => res.status(201).type("text").send("placed \ud83d"),
  "64 KiB": (res) => res.status(201).send("x".repeat(65_536)),
};

// A plain guard captures a response in the same way.
describe.each(expresses.filter(({ seesWork }) => seesWork))("$name", (framework: Framework) => {
  const open = (answering: Answering, guard: object = {}) =>
    openOnce({
      framework,
      guard: { idempotency: {}, ...guard },
      handler: ({ express }) => answering(express?.res as Response, express?.req as Request),
    });

  test.each(Object.keys(ways))("%s is repeated byte for byte", async (way) => {
    const once = await open(ways[way] as Answering);
    const path = way === "res.jsonp" ? "/orders?callback=show" : "/orders";
    const [first, second] = await once.twice({ key: orderKey, path });
    expect(first.status).toBeLessThan(400);
    const kept = [
      "content-type",
      "location",
      "link",
      "etag",
      "content-disposition",
      "last-modified",
    ];
    for (const name of kept) expect(second.headers[name], name).toEqual(first.headers[name]);
    expect([second.status, second.body]).toEqual([first.status, first.body]);
    expect(second.headers["idempotent-replayed"]).toBe("true");
    expect(first.headers["idempotent-replayed"]).toBeUndefined();
    expect(once.runs).toBe(1);
  });

  const tooLong: Record<string, Answering> = {
    "65 537 bytes": (res) => res.status(201).send("x".repeat(65_537)),
    "a stream of 10 MB": (res) =>
      pipeline(
        Readable.from(Array.from({ length: 160 }, () => "x".repeat(65_536))),
        res.status(201),
      ),
    "server-sent events": async (res) => {
      res.status(200).type("text/event-stream").flushHeaders();
      for (let i = 0; i < 200; i++) res.write(`data: ${"x".repeat(1_000)}\n\n`);
      res.end();
    },
  };
  test.each(Object.keys(tooLong))("%s is sent as it is, and not run again", async (way) => {
    const once = await open(tooLong[way] as Answering);
    const bare = await openOnce({
      framework,
      bare: true,
      handler: ({ express }) => tooLong[way]?.(express?.res as Response, express?.req as Request),
    });
    const [first, second] = await once.twice();
    expect(first).toEqual(await bare.submit());
    expect([second.status, codeOf(second)]).toEqual([409, "idempotency_answer_unavailable"]);
    expect(second.headers["retry-after"]).toBeUndefined();
    expect(once.runs).toBe(1);
    expect((await once.records())[0]?.length).toBeLessThan(300);
  });

  test("an answer that is too long to be kept is repeated as far as its headers say it", async () => {
    const once = await open((res) =>
      res.status(201).location("/orders/7").send("x".repeat(65_537)),
    );
    const [, second] = await once.twice();
    expect([second.status, second.headers["location"], second.body]).toEqual([
      201,
      "/orders/7",
      "",
    ]);
    expect(second.headers["idempotent-replayed"]).toBe("true");
  });

  test("cookies and what concerns the connection are never repeated", async () => {
    const once = await open((res) => {
      res.cookie("cart", "empty").set("x-order", "7").set("www-authenticate", "Basic");
      res.status(201).json({});
    });
    const [first, second] = await once.twice();
    expect(first.headers["set-cookie"]).toEqual(["cart=empty; Path=/"]);
    for (const name of ["set-cookie", "x-order", "www-authenticate"]) {
      expect(second.headers[name]).toBeUndefined();
    }
    expect((await once.records()).join()).not.toMatch(/cookie|cart=empty|x-order|Basic/i);
  });

  test("replayHeaders are repeated as well", async () => {
    const guard = { idempotency: { replayHeaders: ["X-Order"] } };
    const once = await open((res) => res.status(201).set("x-order", "7").json({}), guard);
    const [first, second] = await once.twice();
    expect(second.headers["x-order"]).toBe("7");
    expect(unmarked(second)).toEqual(unmarked(first));
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

  test("an end further out that writes, as older wrappers have it, doubles nothing", async () => {
    const writes = onExpress((_req, res, next) => {
      const { end } = res;
      res.end = function endInTwo(this: Response, chunk?: unknown) {
        if (chunk !== undefined) this.write(chunk);
        return Reflect.apply(end, this, []);
      } as typeof res.end;
      next();
    });
    for (const place of ["outside", "inside"] as const) {
      const once = await openOnce({
        framework,
        [place]: [writes],
        handler: ({ express }) => express?.res.status(201).type("text").end("placed"),
      });
      const [first, second] = await once.twice();
      expect([first.body, second.body]).toEqual(["placed", "placed"]);
      expect((await once.records()).join()).toContain('"b":"placed"');
    }
  });

  test.each([
    ["a session", sessionLayer(30), "placed and more"],
    ["compression", compressionLayer(), "placed"],
  ])(
    "what is written while %s holds back the end may be sent, so nothing is repeated",
    async (_who, layer, sent) => {
      const once = await openOnce({
        framework,
        outside: [layer],
        handler: ({ res }) => {
          res.writeHead(201, { "content-type": "text/plain" }).end("placed");
          res.write(" and more");
        },
      });
      const headers = { "accept-encoding": "gzip" };
      const [first, second] = await once.twice({ key: orderKey, headers });
      const [one, two] = [first, second].map(({ body, headers }) =>
        headers["content-encoding"] === "gzip"
          ? `${gunzipSync(Buffer.from(body, "latin1"))}`
          : body,
      );
      expect([one, second.status]).toEqual([sent, 409]);
      expect(two).toContain("idempotency_answer_unavailable");
      expect(once.runs).toBe(1);
    },
  );

  test("what is written after the end is no part of the answer", async () => {
    const once = await open((res) => {
      res.on("error", () => {});
      res.status(201).end("placed");
      res.write("more");
      res.end("and more");
    });
    const [, second] = await once.twice();
    expect(second.body).toBe("placed");
  });
});
