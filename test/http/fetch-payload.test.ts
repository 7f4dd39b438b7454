import { Agent, createServer, request } from "node:http";
import { isDeepStrictEqual } from "node:util";
import { getRequestListener } from "@hono/node-server";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { canonicalJson } from "../../src/canonical-json.ts";
import { submitGuard } from "../../src/fetch/index.ts";
import { payloadOf } from "../../src/fetch/payload.ts";
import { MemoryStore, SubmitLock } from "../../src/index.ts";
import { listen } from "./http-client.ts";

const json = "application/json";
const form = "application/x-www-form-urlencoded";
const multipart = "multipart/form-data; boundary=b";

function sent(type: string, body: string | Buffer | ReadableStream, search = ""): Request {
  const init = { method: "POST", headers: { "content-type": type }, body, duplex: "half" as const };
  return new Request(`http://shop.test/orders${search}`, init);
}

/** The text of which a fingerprint is the hash. */
async function textOf(request: Request): Promise<string> {
  return canonicalJson(await payloadOf(request));
}

/** As a request sends it: a text as its latin1 bytes. */
const of = (type: string, latin1: string, search?: string) =>
  textOf(sent(type, Buffer.from(latin1, "latin1"), search));

describe("a usual request keeps its fingerprint", () => {
  test.each<[type: string, body: string, search: string, text: string]>([
    [json, '{"b": 1.0, "a": ["x", null]}', "", '[{},{"a":["x",null],"b":1}]'],
    [`${json}; charset=utf-8`, '{"a":"\u00c3\u00a9"}', "?q=%C3%A9", '[{"q":"é"},{"a":"é"}]'],
    ["application/vnd.shop+json", "7", "?b=1&a=2&b=3", '[{"a":"2","b":["1","3"]},7]'],
    [json, "{not JSON", "", "[{},xe25vdCBKU09O]"],
    [json, "", "", "[{},null]"],
    [form, "b=2&a=1&b=%C3%A9+&c", "", '[{},{"a":"1","b":["2","é "],"c":""}]'],
    [
      form,
      "__proto__=1&__proto__=2&constructor=3",
      "",
      '[{},{"__proto__":["1","2"],"constructor":"3"}]',
    ],
    ["text/plain;charset=UTF-8", "placed", "", '[{},"placed"]'],
    ["application/octet-stream", "\u0001\u00ff", "", "[{},xAf8=]"],
  ])("%s %j %s", async (type, body, search, text) => {
    expect(await of(type, body, search)).toBe(text);
  });
});

describe("two bodies are one only if they mean the same", () => {
  test("nothing and null, and escaped bytes in the query, are not", async () => {
    expect(await of(json, "null")).not.toBe(await of(json, ""));
    expect(await of(json, "1", "?a=%E9")).not.toBe(await of(json, "1", "?a=%E8"));
  });

  test.each<[what: string, type: string, first: string, second: string]>([
    ["the order of an object's members", json, '{"a":1,"b":2}', ' {"b":2, "a":1}'],
    ["the spelling of numbers and texts", json, '[1.0,"\\u0061"]', '[1,"a"]'],
    ["the order of a form's names", form, "a=1&b=2&a=3", "b=2&a=1&a=3"],
    ["the spelling of a form", form, "a=%20%e9%ab%98&b", "b=&&a=+%E9%AB%98"],
  ])("%s does not count", async (_what, type, first, second) => {
    expect(await of(type, first)).toBe(await of(type, second));
  });

  test("the boundary of a form does not count, and what is no boundary does", async () => {
    const body = (boundary: string, value: string) =>
      part('name="a"', "", value).replaceAll("--b", `--${boundary}`);
    const quoted = 'multipart/form-data; charset=utf-8; Boundary="x y"; a=b';
    const first = await of(multipart, body("b", "1"));
    expect(await of("multipart/form-data;boundary=c", body("c", "1"))).toBe(first);
    expect(await of(quoted, body("x y", "1"))).toBe(first);
    expect(await of(quoted, body("x y", "2"))).not.toBe(first);
    expect(await of("multipart/form-data", body("b", "1"))).not.toBe(first);
  });

  test("a field that except names does not count in a form with files, and no other field", async () => {
    const body = (token: string, cart: string) =>
      sent(
        multipart,
        [
          ...[part('name="größe"', "", token), part('name="cart"', "", cart)],
          part('name="photo"; filename="größe"', "image/png", "bytes"),
        ]
          .join("")
          .replaceAll("--b--\r\n--b", "--b"),
      );
    const of = async (request: Request, ...except: string[]) =>
      canonicalJson(await payloadOf(request, except));
    const first = await of(body("1", "7"), "größe");
    expect(await of(body("2", "7"), "größe")).toBe(first);
    expect(await of(body("1", "8"), "größe")).not.toBe(first);
    expect(first).not.toBe(await of(body("1", "7"), "größe", "photo"));
    expect(await of(body("2", "7"), "Größe")).not.toBe(await of(body("1", "7"), "Größe"));
  });

  /** The pairs of a form in bytes, the names sorted. */
  const pairsOf = (body: string) =>
    body
      .split("&")
      .filter((pair) => pair !== "")
      .map((pair) =>
        pair
          .replace(/^[^=]*$/, "$&=")
          .split(/=(.*)/s, 2)
          .map(unescaped),
      )
      .sort(([a = ""], [b = ""]) => (a < b ? -1 : Number(a > b)));
  const unescaped = (text: string) =>
    text
      .replaceAll("+", " ")
      .replace(/%([0-9a-f]{2})/gi, (_all, hex) => String.fromCharCode(Number.parseInt(hex, 16)));
  const parsed = (body: string) => {
    const text = Buffer.from(body, "latin1");
    try {
      // 0 is -0.
      return [
        JSON.parse(
          new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(text),
          (_key, value) => (value === 0 ? 0 : value),
        ),
      ];
    } catch {
      return body;
    }
  };

  test.each<[type: string, seeds: string[], alphabet: string, meaning: (body: string) => unknown]>([
    [
      form,
      ["a=%E9&b=1&a=%C3%A9", "a=1&b=2&a=1", "%ef%bb%bf=+"],
      "a=&%+19EeCcAaF8\u00e9\u00e8\u00c3\u00a9\u00ef\u00bb\u00bf",
      pairsOf,
    ],
    [
      json,
      ['{"a":[1,null,"\u00c3\u00a9"],"b":{}}', '[1e99,"\\ud83d\\ude00"]', "-0", '["\u00e9",1e999]'],
      '{}[]",:\\ue-+.019ad8 nul\u00e9\u00c3\u00a9\u00ef\u00bb\u00bf',
      parsed,
    ],
    [
      "text/plain",
      ["a\u00c3\u00a9", "\u00ef\u00bb\u00bfa"],
      "ab\u00e9\u00e8\u00c3\u00a9\u00ef\u00bb\u00bf",
      String,
    ],
    ["text/plain; charset=utf-16", ["a\u0000", "\u00ff\u00fea"], "ab\u0000\u00ff\u00fe", String],
    [
      multipart,
      [part('name="a"'), `${part('name="a"; filename="%22"').slice(0, -5)}${part('name="a"')}`],
      'ab-\r\n"%2;=\u00e9\u00e8',
      String,
    ],
    ["image/png", ["\u0000\u00ff"], "\u0000\u00ff\u00fe", String],
  ])("any two of %s", async (type, seeds, alphabet, meaning) => {
    const letter = fc.constantFrom(...alphabet);
    const bodies = fc
      .tuple(fc.constantFrom(...seeds), fc.array(fc.tuple(fc.nat(), fc.nat(1), letter)), letter)
      .map(([seed, edits, last]) => {
        let first = seed;
        for (const [at, cut, put] of edits.slice(1)) first = edited(first, at, cut, put);
        // Most pairs differ in one byte.
        const [at, cut] = edits[0] ?? [0, 1];
        return [first, edited(first, at, cut, last)] as const;
      });
    const property = fc.asyncProperty(bodies, async ([first, second]) => {
      // A number that is not finite has no text, and equals no other.
      const text = (body: string) => of(type, body).catch(() => body);
      if ((await text(first)) !== (await text(second))) return;
      expect(isDeepStrictEqual(meaning(first), meaning(second))).toBe(true);
    });
    await fc.assert(property, { numRuns: 1_000 });
  });
});

function edited(body: string, at: number, cut: number, put: string): string {
  const place = at % (body.length + 1);
  return body.slice(0, place) + put + body.slice(place + cut);
}

function part(disposition: string, type = "", value = "1"): string {
  const typed = type && `Content-Type: ${type}\r\n`;
  return `--b\r\nContent-Disposition: form-data; ${disposition}\r\n${typed}\r\n${value}\r\n--b--\r\n`;
}

const mebibyte = 1_048_576;

const chunksOf = (count: number, length: number) => {
  let left = count;
  return new ReadableStream({
    pull(controller) {
      if (left-- > 0) controller.enqueue(new Uint8Array(length));
      else controller.close();
    },
  });
};

test("a body of more than 4 096 chunks is refused: its clone would block the handler", async () => {
  const request = sent("text/plain", chunksOf(4_096, 256));
  expect((await payloadOf(request)) as unknown[]).toHaveLength(2);
  expect(await request.text()).toHaveLength(mebibyte);
  await expect(payloadOf(sent("text/plain", chunksOf(4_097, 1)))).rejects.toMatchObject({
    code: "SUBMIT_LOCK_NO_FINGERPRINT",
    status: 413,
  });
});

test("a client that announces too long a body gets a 413 each time, and not a broken connection", async () => {
  const lock = new SubmitLock({ store: new MemoryStore() });
  const guard = submitGuard({ lock, userId: () => "42", idempotency: {} });
  const server = createServer(getRequestListener(guard.protect(() => new Response("placed"))));
  const path = `http://127.0.0.1:${await listen(server)}/orders`;
  const agent = new Agent({ keepAlive: true });
  for (let n = 0; n < 20; n++) {
    const status = await new Promise((resolve, reject) => {
      const headers = { "idempotency-key": `large-${n}`, "content-type": "text/plain" };
      const sent = request(path, { method: "POST", headers, agent }, (res) => {
        res.resume().once("end", () => resolve(res.statusCode));
      });
      sent.once("error", reject).end("a".repeat(2_000_000));
    });
    expect(status).toBe(413);
  }
  agent.destroy();
  server.close();
  await lock.close();
});
