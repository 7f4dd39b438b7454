import { connect } from "node:net";
import { text } from "node:stream/consumers";
import { gzipSync } from "node:zlib";
import express from "express";
import { describe, expect, onTestFinished, test } from "vitest";
import { submitGuard } from "../../src/express/index.ts";
import { MemoryStore, SubmitLock } from "../../src/index.ts";
import { allMain, type Framework, hasParsers } from "./frameworks.ts";
import { listen } from "./http-client.ts";
import { layerThatWaits } from "./layers.ts";
import { codeOf, type OnceShop, openOnce, orderKey } from "./once-shop.ts";

/** The same body in chunks, as a proxy may send it. */
async function inChunks(port: number, headers: Record<string, string>, body: string) {
  const socket = connect(port, "127.0.0.1");
  const all = { host: "shop", connection: "close", ...headers, "transfer-encoding": "chunked" };
  const head = Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`);
  socket.write(`POST /orders HTTP/1.1\r\n${head.join("")}\r\n`);
  for (let at = 0; at < body.length; at += 10_000) {
    const chunk = body.slice(at, at + 10_000);
    socket.write(`${chunk.length.toString(16)}\r\n${chunk}\r\n`);
  }
  socket.write("0\r\n\r\n");
  return Number((await text(socket)).split(" ")[1]);
}

const bodies: Record<string, string> = {
  "45 kB with 1e20": JSON.stringify({ lines: Array(2_000).fill({ qty: "x", id: 7 }) }).replaceAll(
    '"x"',
    "1e20",
  ),
  "90 kB": JSON.stringify({ lines: Array(9_000).fill({ id: 7 }) }),
  "90 kB in another spelling": JSON.stringify({ b: "x".repeat(90_000), a: 1 }, null, 1),
};

describe.each(allMain)("P9: the content of a body decides, on $name", (framework: Framework) => {
  const headersOf = (once: OnceShop) => ({
    "x-user": once.shop.user,
    "idempotency-key": orderKey,
    "content-type": "application/json",
  });

  test.each(Object.keys(bodies))("%s sent again in chunks is the same", async (name) => {
    const once = await openOnce({ framework });
    const body = bodies[name] as string;
    const headers = headersOf(once);
    expect((await once.submit({ key: orderKey, headers, body })).status).toBe(201);
    await once.whenKept(1);
    expect(await inChunks(once.shop.port, headers, body)).toBe(201);
    expect(once.runs).toBe(1);
  });

  test.each([10, 70_000])("a number that is not finite is refused in %i characters", async (n) => {
    const errors: unknown[] = [];
    const once = await openOnce({ framework, onError: (error) => errors.push(error) });
    const content = (a: string) => `{"a":${a},"b":"${"x".repeat(n)}"}`;
    const submit = (body: string) => once.submit({ key: orderKey, headers: headersOf(once), body });
    expect((await submit(content("null"))).status).toBe(201);
    await once.whenKept(1);
    // The bytes of a long body on fetch are not parsed.
    expect((await submit(content("1e400"))).status).toBe(422);
    expect(once.runs).toBe(1);
    if (hasParsers(framework)) {
      expect(errors).toMatchObject([{ code: "SUBMIT_LOCK_NO_FINGERPRINT", status: 422 }]);
    }
  });

  // The parsers of the others refuse it.
  test.runIf(["fastify", "fetch"].includes(framework.family))(
    "the JSON text null is another content than no body",
    async () => {
      const once = await openOnce({ framework });
      const headers = headersOf(once);
      expect((await once.submit({ key: orderKey, headers, body: "null" })).status).toBe(201);
      await once.whenKept(1);
      expect((await once.submit({ key: orderKey })).status).toBe(422);
      expect(once.runs).toBe(1);
    },
  );

  test.runIf(hasParsers(framework)).each([1, 30_000])(
    "a Map that a parser leaves equals nothing, beside %i members",
    async (n) => {
      let value = "one";
      const leave = async (req: object) => {
        const made = { map: new Map([["a", value]]), list: Array(n).fill(1) };
        Object.assign(req, { body: made });
      };
      const errors: { code?: string }[] = [];
      const once = await openOnce({
        framework,
        onError: (error) => errors.push(error as object),
        guard: { idempotency: { fingerprint: (req) => Reflect.get(req, "body") } },
        outside: [layerThatWaits(leave as never)],
        recipe: {
          express: {},
          koa: {
            idempotency: { fingerprint: ({ req }: { req: object }) => Reflect.get(req, "body") },
          },
          fastify: {
            idempotency: { fingerprint: ({ raw }: { raw: object }) => Reflect.get(raw, "body") },
          },
          fetch: {},
        },
      });
      for (value of ["one", "other"]) {
        expect((await once.submit({ key: orderKey })).status).toBe(500);
      }
      expect(errors.map(({ code }) => code)).toEqual(Array(2).fill("SUBMIT_LOCK_NO_FINGERPRINT"));
      expect(once.runs).toBe(0);
    },
  );

  test("except leaves members of the body out, and no others", async () => {
    const fingerprint = { except: ["captcha", "_csrf"] };
    const once = await openOnce({ framework, guard: { idempotency: { fingerprint } } });
    const submit = (body: object) => once.submit({ key: orderKey, body });
    expect((await submit({ cart: 7, captcha: "a", _csrf: 1 })).status).toBe(201);
    await once.whenKept(1);
    for (const same of [{ captcha: "b", cart: 7 }, { cart: 7 }]) {
      expect((await submit(same)).status).toBe(201);
    }
    const others = [{ cart: 8 }, { cart: 7, deep: { captcha: 1 } }, { cart: 7, Captcha: "a" }];
    for (const other of others) expect(codeOf(await submit(other))).toBe("idempotency_conflict");
    expect(once.runs).toBe(1);
  });

  test("except compares the content of an id of the application's own", async () => {
    const idempotency = { submissionId: () => "token", fingerprint: { except: ["_csrf"] } };
    const once = await openOnce({ framework, guard: { idempotency } });
    expect((await once.submit({ body: { pieces: 1, _csrf: 1 } })).status).toBe(201);
    await once.whenKept(1);
    expect((await once.submit({ body: { pieces: 1, _csrf: 2 } })).status).toBe(201);
    expect((await once.submit({ body: { pieces: 5, _csrf: 1 } })).status).toBe(422);
    expect(once.runs).toBe(1);
  });
});

test("90 kB sent again as gzip are the same, and other 90 kB are not", async () => {
  const app = express();
  const lock = new SubmitLock({ store: new MemoryStore() });
  app.use(express.json({ limit: "10mb" }));
  const guard = submitGuard({ lock, userId: () => "42", idempotency: {} });
  app.post(
    "/orders",
    guard.protect(async (_req, res) => void res.status(201).json({})),
  );
  const { createServer } = await import("node:http");
  const server = createServer(app);
  onTestFinished(() => void server.close());
  const url = `http://127.0.0.1:${await listen(server)}`;
  const send = async (body: string, isPacked: boolean) => {
    const headers = {
      "content-type": "application/json",
      "idempotency-key": "a",
      ...(isPacked && { "content-encoding": "gzip" }),
    };
    const packed = isPacked ? new Uint8Array(gzipSync(body)) : body;
    const reply = await fetch(`${url}/orders`, { method: "POST", headers, body: packed });
    await reply.text();
    return [reply.status, reply.headers.get("idempotent-replayed")];
  };
  const body = bodies["90 kB"] as string;
  expect(await send(body, false)).toEqual([201, null]);
  expect(await send(body, true)).toEqual([201, "true"]);
  expect(await send(body.replace("7", "8"), true)).toEqual([422, null]);
});
