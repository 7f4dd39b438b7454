import { createReadStream } from "node:fs";
import { Readable } from "node:stream";
import { fileURLToPath } from "node:url";
import type { Context } from "koa";
import { describe, expect, test } from "vitest";
import { type Framework, koas } from "./frameworks.ts";
import { gate } from "./gate.ts";
import { onKoa } from "./layers.ts";
import { codeOf, openOnce, orderKey, unmarked } from "./once-shop.ts";

const file = fileURLToPath(import.meta.url);
const everyByte = Buffer.from(Array.from({ length: 256 }, (_, byte) => byte));

/** Every kind of body that is kept. */
const bodies: Record<string, (ctx: Context) => unknown> = {
  "an object": (ctx) => {
    ctx.status = 201;
    ctx.body = { order: 7, note: "für Ärzte 🛒" };
  },
  "an array": (ctx) => {
    ctx.body = [7, "8"];
  },
  "a number": (ctx) => {
    ctx.body = 7;
  },
  true: (ctx) => {
    ctx.body = true;
  },
  "an object with a type of its own": (ctx) => {
    ctx.type = "application/vnd.shop+json";
    ctx.body = { order: 7 };
  },
  "JSON as a string": (ctx) => {
    ctx.type = "json";
    ctx.body = '{ "order" : 7 }';
  },
  "JSON in another charset than UTF-8": (ctx) => {
    ctx.type = "application/json; charset=iso-8859-1";
    ctx.body = Buffer.from('{"name":"José"}', "latin1");
  },
  "null as a string": (ctx) => {
    ctx.type = "json";
    ctx.body = "null";
  },
  text: (ctx) => {
    ctx.body = "placed";
  },
  HTML: (ctx) => {
    ctx.body = "<h1>Placed</h1>";
  },
  "an empty string": (ctx) => {
    ctx.status = 201;
    ctx.body = "";
  },
  bytes: (ctx) => {
    ctx.body = everyByte;
  },
  "no bytes": (ctx) => {
    ctx.status = 201;
    ctx.body = Buffer.alloc(0);
  },
  "a view of bytes, which Koa takes for an object": (ctx) => {
    ctx.body = new Uint8Array([1, 2, 3]);
  },
  "invalid UTF-8 as text": (ctx) => {
    ctx.type = "text";
    ctx.body = Buffer.from([0x61, 0xc3, 0x28, 0xff]);
  },
  "a byte order mark": (ctx) => {
    ctx.body = "\ufeffplaced";
  },
  null: (ctx) => {
    ctx.body = null;
  },
  "null with another status": (ctx) => {
    ctx.body = null;
    ctx.status = 201;
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
  undefined: (ctx) => {
    ctx.body = undefined;
  },
  "no body": (ctx) => {
    ctx.status = 201;
  },
  "no body, but a message": (ctx) => {
    ctx.status = 202;
    if (ctx.req.httpVersionMajor < 2) ctx.message = "Wait for it";
  },
  "a status that has none": (ctx) => {
    ctx.status = 205;
  },
  "a body for a status that has none": (ctx) => {
    ctx.body = "never sent";
    ctx.status = 204;
  },
  "a redirect": (ctx) => {
    ctx.redirect("/orders/7");
    ctx.status = 303;
  },
  "a location, an etag and an attachment": (ctx) => {
    ctx.status = 201;
    ctx.set({ location: "/orders/7", etag: '"7"', "cache-control": "private" });
    ctx.attachment("receipt.txt");
    ctx.body = "7";
  },
  "the response by hand": (ctx) => {
    ctx.respond = false;
    ctx.res.writeHead(201, { "content-type": "text/csv", location: "/orders/7" });
    ctx.res.write("one ");
    ctx.res.end(Buffer.from("two"));
  },
  "the response by hand, without a type": (ctx) => {
    ctx.respond = false;
    ctx.res.statusCode = 201;
    ctx.res.end("placed");
  },
  "the response by hand, when the handler has returned": (ctx) => {
    ctx.respond = false;
    setTimeout(() => {
      ctx.res.statusCode = 201;
      ctx.res.end("placed");
    }, 20);
  },
  "a first part by hand, and the rest as the body": (ctx) => {
    ctx.status = 201;
    ctx.type = "text";
    ctx.res.write("one ");
    ctx.body = "two";
  },
};

/** What a stream brings is not seen. */
const streams: Record<string, (ctx: Context) => unknown> = {
  "a file": () => createReadStream(file),
  "a generator": () => Readable.from(["one ", "two"]),
  "10 MB": () => Readable.from(Array.from({ length: 160 }, () => Buffer.alloc(65_536, "x"))),
  "a web stream": () => Readable.toWeb(Readable.from([Buffer.from("one ")])),
  "a Blob": () => new Blob(["one"]),
};

describe.each(koas)("$name", (framework: Framework) => {
  const open = (answering: (ctx: Context) => unknown, options: object = {}) =>
    openOnce({ framework, handler: ({ ctx }) => answering(ctx as Context), ...options });

  test.each(Object.keys(bodies))("%s is repeated byte for byte", async (kind) => {
    const once = await open(bodies[kind] as (ctx: Context) => unknown);
    const [first, second] = await once.twice();
    expect(first.status).toBeLessThan(400);
    expect(second.headers["idempotent-replayed"]).toBe("true");
    expect(unmarked(second)).toEqual(unmarked(first));
    expect(once.runs).toBe(1);
  });

  test.each(Object.keys(streams))(
    "%s as the body is sent as it is, and not run again",
    async (kind) => {
      // Koa 2 knows neither of the two.
      const isWeb = kind === "a web stream" || kind === "a Blob";
      if (isWeb && framework.major === 2) return;
      const answering = (ctx: Context) => {
        ctx.status = 201;
        ctx.body = streams[kind]?.(ctx);
      };
      const once = await open(answering);
      const bare = await open(answering, { bare: true });
      const [first, second] = await once.twice();
      expect(first).toEqual(await bare.submit());
      expect([second.status, codeOf(second)]).toEqual([409, "idempotency_answer_unavailable"]);
      expect(second.headers["retry-after"]).toBeUndefined();
      expect(once.runs).toBe(1);
    },
  );

  test("a stream with a location is repeated as far as its headers say it", async () => {
    const once = await open((ctx) => {
      ctx.status = 201;
      ctx.set("location", "/orders/7");
      ctx.body = Readable.from(["placed"]);
    });
    const [, second] = await once.twice();
    expect([second.status, second.headers["location"], second.body]).toEqual([
      201,
      "/orders/7",
      "",
    ]);
  });

  test("an order whose client has left before its stream is not run again", async () => {
    const left = gate();
    const once = await open(async (ctx) => {
      ctx.res.once("close", left.open);
      await left.opened;
      ctx.status = 201;
      ctx.body = createReadStream(file);
    });
    const call = await once.start({ key: orderKey });
    call.abort();
    await once.whenKept(1);
    expect(codeOf(await once.submit({ key: orderKey }))).toBe("idempotency_answer_unavailable");
    expect(once.runs).toBe(1);
  });

  test("text is kept up to 65 536 bytes", async () => {
    const retried = async (length: number) => {
      const once = await open((ctx) => {
        ctx.status = 201;
        ctx.body = "x".repeat(length);
      });
      const [, second] = await once.twice();
      return second.status;
    };
    expect([await retried(65_536), await retried(65_537)]).toEqual([201, 409]);
  });

  test("what outer middleware makes of a body it makes of the replay, too", async () => {
    const kinds: string[] = [];
    const envelope = onKoa(async (ctx, next) => {
      await next();
      kinds.push(typeof ctx.body);
      // It changes the object of the handler, and takes another in its place.
      if (typeof ctx.body === "object") Object.assign(ctx.body as object, { seen: true });
      ctx.body = { data: ctx.body ?? null };
    });
    const wrapped = async (body: unknown) => {
      const once = await open(
        (ctx) => {
          ctx.status = 201;
          if (body !== undefined) ctx.body = body;
        },
        { outside: [envelope] },
      );
      const [first, second] = await once.twice();
      expect(unmarked(second)).toEqual(unmarked(first));
      expect((await once.records())[0]).not.toMatch(/data|seen/);
      return first.body;
    };
    expect(await wrapped({ order: 7 })).toBe('{"data":{"order":7,"seen":true}}');
    expect(await wrapped("placed")).toBe('{"data":"placed"}');
    expect(await wrapped(undefined)).toBe('{"data":null}');
    expect(kinds).toEqual(["object", "object", "string", "string", "undefined", "undefined"]);
  });

  test("an object that is changed after it was answered is repeated as it was", async () => {
    const order = { run: 1 };
    const once = await open((ctx) => {
      ctx.status = 201;
      ctx.body = order;
      setTimeout(() => {
        order.run = 99;
      });
    });
    const [, second] = await once.twice();
    expect(second.body).toBe('{"run":1}');
  });

  test("cookies are never repeated", async () => {
    const once = await open((ctx) => {
      ctx.cookies.set("cart", "empty");
      ctx.set("x-order", "7");
      ctx.status = 201;
    });
    const [first, second] = await once.twice();
    expect(String(first.headers["set-cookie"])).toContain("cart=empty");
    expect([second.headers["set-cookie"], second.headers["x-order"]]).toEqual([
      undefined,
      undefined,
    ]);
    expect((await once.records()).join()).not.toMatch(/cookie|cart=empty|x-order/i);
  });
});
