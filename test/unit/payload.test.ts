import { createHash } from "node:crypto";
import { once } from "node:events";
import {
  type ClientRequest,
  createServer,
  type IncomingMessage,
  request,
  type Server,
} from "node:http";
import * as http2 from "node:http2";
import type { AddressInfo } from "node:net";
import { text } from "node:stream/consumers";
import { setImmediate as turn } from "node:timers/promises";
import express5 from "express";
import express4 from "express4";
import { afterEach, describe, expect, test } from "vitest";
import {
  bodyIsUnparsed,
  bodyWasAnnounced,
  contentAdapter,
  type RequestContent,
  sentBody,
  sentFiles,
} from "../../src/node/payload.ts";

const servers: { close(): unknown }[] = [];
afterEach(() => {
  for (const server of servers.splice(0)) server.close();
});

type Incoming = IncomingMessage | http2.Http2ServerRequest;

async function listen(server: Server | http2.Http2Server): Promise<number> {
  servers.push(server);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return (server.address() as AddressInfo).port;
}

/** What `look` gives for a request that `write` sends, over HTTP/1. */
async function over1(
  headers: Record<string, string>,
  write: (req: ClientRequest) => void,
  look: (req: Incoming) => unknown,
): Promise<unknown> {
  const server = createServer(async (req, res) => res.end(JSON.stringify(await look(req))));
  const port = await listen(server);
  const req = request({ port, host: "127.0.0.1", method: "POST", headers, agent: false });
  write(req);
  const [res] = await once(req, "response");
  return JSON.parse(await text(res));
}

/** The same over HTTP/2. `endStream`: the headers end it. */
async function over2(
  headers: http2.OutgoingHttpHeaders,
  body: string | undefined,
  endStream: boolean,
  look: (req: Incoming) => unknown,
): Promise<unknown> {
  const server = http2.createServer(async (req, res) => res.end(JSON.stringify(await look(req))));
  const client = http2.connect(`http://127.0.0.1:${await listen(server)}`);
  const req = client.request({ ":method": "POST", ...headers }, { endStream });
  if (!endStream) req.end(body);
  try {
    return JSON.parse(await text(req));
  } finally {
    client.close();
  }
}

describe("over HTTP/1, a body is announced", () => {
  test.each<[what: string, headers: Record<string, string>, body: string, announced: boolean]>([
    ["by a length", { "Content-Length": "2" }, "{}", true],
    ["by an encoding", { "Transfer-Encoding": "chunked" }, "{}", true],
    ["by an encoding, even if nothing comes", { "Transfer-Encoding": "chunked" }, "", true],
    ["but not by a length of 0", { "Content-Length": "0" }, "", false],
  ])("%s", async (_what, headers, body, announced) => {
    expect(await over1(headers, (req) => req.end(body), bodyWasAnnounced)).toBe(announced);
  });

  test("but not by an encoding when its end came without a byte", async () => {
    const announced = async (req: Incoming) => {
      await turn();
      return bodyWasAnnounced(req);
    };
    const headers = { "Transfer-Encoding": "chunked" };
    expect(await over1(headers, (req) => req.end(), announced)).toBe(false);
    expect(await over1(headers, (req) => req.end("{}"), announced)).toBe(true);
  });

  test("but not by a request without either", async () => {
    const bare = (req: ClientRequest) => {
      req.removeHeader("Transfer-Encoding");
      req.removeHeader("Content-Length");
      req.end();
    };
    expect(await over1({}, bare, bodyWasAnnounced)).toBe(false);
  });
});

describe("over HTTP/2, a body is announced", () => {
  const later = async (req: Incoming) => {
    await turn();
    return bodyWasAnnounced(req);
  };

  test.each<[what: string, headers: http2.OutgoingHttpHeaders, body: string, announced: boolean]>([
    ["by a length", { "content-length": "2" }, "{}", true],
    ["by a stream that goes on", {}, "{}", true],
    ["but not by a length of 0", { "content-length": "0" }, "", false],
    ["but not by a stream that ended without a byte", {}, "", false],
  ])("%s", async (_what, headers, body, announced) => {
    expect(await over2(headers, body, false, later)).toBe(announced);
  });

  test("but not by headers that end the stream", async () => {
    expect(await over2({}, undefined, true, bodyWasAnnounced)).toBe(false);
    expect(await over2({}, undefined, true, later)).toBe(false);
  });

  test("by a stream that goes on, also before its first byte and after its last", async () => {
    expect(await over2({}, "{}", false, bodyWasAnnounced)).toBe(true);
    const read = async (req: Incoming) => {
      await text(req);
      return bodyWasAnnounced(req);
    };
    expect(await over2({}, "{}", false, read)).toBe(true);
  });
});

describe.each([
  ["Express 4", express4 as unknown as typeof express5],
  ["Express 5", express5],
])("on %s with express.json(), of a body", (_name, express) => {
  const app = express();
  app.use(express.json({ strict: false }));
  app.use((req, res) => {
    const { body } = req;
    res.end(JSON.stringify({ unparsed: bodyIsUnparsed(req, body), sent: sentBody(req, body) }));
  });

  const json = "application/json";
  test.each<
    [what: string, type: string, body: string | undefined, unparsed: boolean, sent?: unknown]
  >([
    ["that is multipart", "multipart/form-data; boundary=x", "--x--", true],
    ["that is text", "text/plain", "order 7", true],
    ["that is JSON", json, '{"sku":7}', false, { sku: 7 }],
    ["that is an empty object", json, "{}", false, {}],
    ["that is an empty array", json, "[]", false, []],
    ["that is null", json, "null", false, Buffer.from("null").toJSON()],
    ["that is empty", json, "", false, null],
    ["that did not come", json, undefined, false, null],
    ["of another type that did not come", "text/plain", undefined, false, null],
  ])("%s is known whether it is unparsed, and what was sent", async (...row) => {
    const [, type, body, unparsed, sent] = row;
    const port = await listen(createServer(app));
    const init = { method: "POST", headers: { "Content-Type": type } };
    const answer = await fetch(`http://127.0.0.1:${port}/`, {
      ...init,
      ...(body !== undefined && { body }),
    });
    expect(await answer.json()).toMatchObject(unparsed ? { unparsed } : { unparsed, sent });
  });
});

test.each([
  ["/orders?cart=7"],
  ["http://shop.example/orders?at=https://other.example/"],
  ["HTTPS://shop.example:443/orders"],
])("the path of %s is /orders", (url) => {
  const { path } = contentAdapter(() => ({ url }) as RequestContent);
  expect(path(undefined)).toBe("/orders");
});

test("what a platform has parsed by itself counts, unless it is empty", async () => {
  const look = (req: Incoming) =>
    [undefined, {}, { sku: 7 }, [], "", "order 7", Buffer.alloc(0), null].map((body) =>
      bodyIsUnparsed(req, body),
    );
  const answers = await over1({ "Content-Length": "2" }, (req) => req.end("{}"), look);
  expect(answers).toEqual([true, true, false, false, false, false, false, true]);
});

const file = { fieldname: "list", originalname: "a.txt", mimetype: "text/plain", size: 3 };
const inMemory = { ...file, buffer: Buffer.from("abc") };

test("places without a file describe nothing", () => {
  for (const places of [[], [undefined, null], [[], {}], [Object.create(null)], [{ list: [] }]]) {
    expect(sentFiles(places)).toBeUndefined();
  }
});

test("more than 1 000 files are a 413", () => {
  const files = (count: number) => [Array.from({ length: count }, () => ({ ...inMemory }))];
  expect(Object.values(sentFiles(files(1_000)) ?? {})[0]).toHaveLength(1_000);
  expect(() => sentFiles(files(1_001))).toThrow(
    expect.objectContaining({ code: "SUBMIT_LOCK_NO_FINGERPRINT", status: 413 }),
  );
});

test("a file that lies in two places is one file", () => {
  const files = { list: [inMemory] };
  expect(sentFiles([files, undefined, files])).toEqual(sentFiles([files]));
});

test("a field may have any name", () => {
  const files = JSON.parse('{"__proto__":{"name":"a","hash":"1"},"size":{"name":"b","hash":"2"}}');
  expect(Object.keys(sentFiles([files]) ?? {})).toEqual(["__proto__", "size"]);
});

/** A file as the parser leaves it, in memory or on disk; uploads of multer are real in once-uploads. */
const leftBy: Record<string, (text: string, name?: string) => object> = {
  "express-fileupload 1.5, in memory": (text, name = "a.txt") => ({
    ...{ name, data: Buffer.from(text), size: text.length, encoding: "7bit", tempFilePath: "" },
    ...{ truncated: false, mimetype: "text/plain", md5: hashOf("md5", text), mv() {} },
  }),
  "express-fileupload 1.5, in files": (text, name = "a.txt") => ({
    ...{ name, data: Buffer.alloc(0), size: text.length, tempFilePath: `/tmp/${Math.random()}` },
    ...{ truncated: false, mimetype: "text/plain", md5: hashOf("md5", text), mv() {} },
  }),
  "koa-body 8 with hashes": (text, name = "a.txt") =>
    new (class PersistentFile {
      readonly originalFilename = name;
      readonly filepath = `/tmp/${Math.random()}`;
      readonly mimetype = "text/plain";
      readonly size = text.length;
      readonly hash = hashOf("sha256", text);
    })(),
};
const hashOf = (algorithm: string, text: string) =>
  createHash(algorithm).update(text).digest("hex");

describe.each(Object.entries(leftBy))("the files of %s", (parser, of) => {
  test("are the same by field, name and bytes, wherever they were written", () => {
    const same = () => sentFiles([{ list: of("100 apples") }]);
    expect(same()).toEqual(same());
    const others = [
      { list: of("999 pears ") },
      { list: of("100 apples", "b.txt") },
      { photo: of("100 apples") },
      { list: [of("100 apples"), of("100 apples")] },
    ];
    for (const other of others) expect(sentFiles([other])).not.toEqual(same());
  });

  test("of one field count in their order where they are in memory", () => {
    const [a, b] = [of("abc"), of("def", "b.txt")];
    const sorted = sentFiles([{ list: [a, b] }]);
    if (parser.endsWith("in memory")) expect(sentFiles([{ list: [b, a] }])).not.toEqual(sorted);
    else expect(sentFiles([{ list: [b, a] }])).toEqual(sorted);
  });
});

describe("a file cannot be compared:", () => {
  test.each<[what: string, place: unknown]>([
    ["a file without bytes", file],
    ["an empty buffer of a file on disk", { ...inMemory, buffer: Buffer.alloc(0) }],
    ["bytes that are not those of the size", { ...inMemory, size: 4 }],
    ["bytes without a size", { ...inMemory, size: undefined }],
    ["a hash that is empty", { ...file, hash: "" }],
    ["a hash that is not finished", { ...file, hash: { update() {} } }],
    ["an ETag", { ...file, etag: '"900150983cd24fb0d6963f7d28e17f72"' }],
    ["a path", { path: "/tmp/a" }],
    ["a web File", new File(["abc"], "a.txt")],
    ["a file among others", [inMemory, file]],
    ["a file in a field of a field", { list: { first: file } }],
  ])("%s", (_what, place) => {
    expect(() => sentFiles([place])).toThrow(
      expect.objectContaining({ code: "SUBMIT_LOCK_NO_FINGERPRINT", status: 500 }),
    );
  });
});
