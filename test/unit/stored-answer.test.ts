import { once } from "node:events";
import {
  createServer,
  IncomingMessage,
  type OutgoingHttpHeaders,
  request,
  ServerResponse,
} from "node:http";
import { type AddressInfo, Socket } from "node:net";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { StorePolicy } from "../../src/http/public.ts";
import {
  bodyToRepeat,
  isReadable,
  isStored,
  resolveStoredHeaders,
} from "../../src/http/stored-answer.ts";
import { type GivenHeaders, pickHeaders } from "../../src/node/capture.ts";

const stored = resolveStoredHeaders(["X-Order"]);
const newResponse = () => new ServerResponse(new IncomingMessage(new Socket()));
const pick = (given: GivenHeaders) => ({ ...pickHeaders(stored, newResponse(), given) });

test("an Accept-Encoding of many blanks is read in a time that grows with its length", () => {
  const answer = { status: 201, headers: { "content-encoding": "gzip" }, body: new Uint8Array(1) };
  const from = performance.now();
  // By the square of the length this takes minutes.
  expect(isReadable(answer, `a${" ".repeat(400_000)}b, gzip ; q=0.5`)).toBe(true);
  expect(isReadable(answer, `gzip;${" ".repeat(400_000)}q=0`)).toBe(false);
  expect(performance.now() - from).toBeLessThan(10_000);
});

test.each([
  ["a value", '{"a":1}', { a: 1 }],
  ["a text that is spelt in another way", '{ "a": 1 }', '{ "a": 1 }'],
  ["a text that is no JSON", "placed", "placed"],
])("a body of a JSON type is repeated as %s, in the form that it had", (_what, body, expected) => {
  expect(bodyToRepeat(Buffer.from(body), "application/json; charset=utf-8")).toEqual(expected);
});

describe("what is stored", () => {
  // The list itself is that of the reference: test/unit/docs/reference.test.ts.
  test("without names, is the list of the default", () => {
    expect(resolveStoredHeaders([])).toEqual(resolveStoredHeaders(undefined));
  });

  test("is also what replayHeaders adds, in lower case", () => {
    expect([...resolveStoredHeaders(["X-Order", "Location", "x_y"])].slice(30)).toEqual([
      "x-order",
      "x_y",
    ]);
  });
});

describe("of an answer's headers", () => {
  test.each<[what: string, given: GivenHeaders, picked: object]>([
    ["nothing gives nothing", undefined, {}],
    [
      "the listed ones are picked, whatever their case",
      {
        "Content-Type": "text/html",
        "SET-COOKIE": "sid=1",
        ETag: '"7"',
        Vary: "Accept-Language",
        "content-range": "bytes 0-1/7",
        server: "shop",
        "X-ORDER": "7",
      },
      {
        "content-type": "text/html",
        etag: '"7"',
        vary: "Accept-Language",
        "content-range": "bytes 0-1/7",
        "x-order": "7",
      },
    ],
    [
      "numbers become strings",
      { "x-order": 7, link: [1, "b"] },
      { "x-order": "7", link: ["1", "b"] },
    ],
    ["what has no value is left out", { etag: undefined, link: null }, {}],
    ["__proto__ is left out", JSON.parse('{"__proto__":{"etag":"7"}}'), {}],
    [
      "a flat array is read, and a name that comes again adds a value",
      ["Link", "<a>", "Set-Cookie", "sid=1", "link", "<b>", "LINK", ["<c>", "<d>"], "ETag", "7"],
      { link: ["<a>", "<b>", "<c>", "<d>"], etag: "7" },
    ],
    [
      "an array of pairs is read",
      [
        ["Link", "<a>"],
        ["link", "<b>"],
        ["date", "now"],
      ],
      { link: ["<a>", "<b>"] },
    ],
    ["the later of two spellings counts", { ETag: "1", etag: "2" }, { etag: "2" }],
  ])("%s", (_what, given, picked) => {
    expect(pick(given)).toEqual(picked);
  });

  test("those that are set are picked, and those that are given replace them", () => {
    const res = newResponse();
    res.setHeader("Link", ["<a>", "<b>"]).setHeader("ETag", "1").setHeader("X-Order", 7);
    res.setHeader("Server", "shop");
    const set = { link: ["<a>", "<b>"], etag: "1", "x-order": "7" };
    expect({ ...pickHeaders(stored, res) }).toEqual(set);
    const given = { ...set, link: "<c>", location: "/" };
    expect({ ...pickHeaders(stored, res, { LINK: "<c>", location: "/" }) }).toEqual(given);
    expect({ ...pickHeaders(stored, res, ["Link", "<c>", "location", "/"]) }).toEqual(given);
  });

  test("the result has no prototype", () => {
    expect(Object.getPrototypeOf(pickHeaders(stored, newResponse(), { etag: "1" }))).toBeNull();
  });

  test.each<
    [what: string, before: Record<string, string[]>, argument: OutgoingHttpHeaders | string[]]
  >([
    ["an object", { ETag: ["1"], Link: ["<a>"] }, { eTag: "2", "X-Order": 7, "set-cookie": "a=1" }],
    ["an array", { ETag: ["1"], Link: ["<a>"] }, ["Link", "<b>", "Cache-Control", "no-cache"]],
    ["an array that repeats a name", {}, ["Link", "<b>", "x-order", "7", "link", "<c>"]],
    // Node.js 20 sends the last one alone.
    [
      "an array that repeats a name after others are set",
      { ETag: ["1"] },
      ["Link", "<b>", "link", "<c>"],
    ],
    ["an array that repeats a name that is set", { Link: ["<a>"] }, ["Link", "<b>", "link", "<c>"]],
  ])("what is picked is what Node.js sends for %s", async (_what, before, argument) => {
    let picked: Record<string, string | string[]> = {};
    const server = createServer((_req, res) => {
      for (const [name, value] of Object.entries(before)) res.setHeader(name, value);
      picked = pickHeaders(stored, res, argument);
      res.writeHead(200, argument).end();
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    const { port } = server.address() as AddressInfo;
    const [res] = await once(request({ port, host: "127.0.0.1", agent: false }).end(), "response");
    res.resume();
    server.close();
    const sent = res.headersDistinct as Record<string, string[]>;
    const lists = Object.entries(picked).map(([name, value]) => [name, [value].flat()]);
    expect(Object.fromEntries(lists)).toEqual(
      Object.fromEntries(Object.entries(sent).filter(([name]) => stored.has(name))),
    );
  });
});

const statuses = Array.from({ length: 500 }, (_, i) => i + 100);
const kept = (policy: StorePolicy) =>
  statuses.filter((status) => isStored(policy, { status, headers: {} }));

describe("an answer is kept", () => {
  test("where it is 2xx or 3xx, by default", () => {
    expect(kept("success")).toEqual(statuses.filter((status) => status >= 200 && status < 400));
  });

  test('also where it is 4xx with "final", but for those that speak of the moment', () => {
    const passing = [401, 403, 407, 408, 409, 421, 423, 425, 429];
    expect(kept("final")).toEqual(
      statuses.filter((status) => status >= 200 && status < 500 && !passing.includes(status)),
    );
  });

  test("where a function says so, which is given the answer", () => {
    const answer = { status: 402, headers: { etag: "7" }, body: Buffer.from("hi") };
    const asked: unknown[] = [];
    expect(isStored((given) => asked.push(given) > 0, answer)).toBe(true);
    expect(asked).toEqual([answer]);
    expect(isStored(() => false, { ...answer, status: 201 })).toBe(false);
  });

  test("never where it is 5xx, or no answer yet, and nobody is asked", () => {
    const never = fc.oneof(fc.integer({ min: 500, max: 599 }), fc.integer({ min: 100, max: 199 }));
    fc.assert(
      fc.property(never, (status) => {
        const ask = () => {
          throw new Error("asked");
        };
        expect(isStored(ask, { status, headers: {} })).toBe(false);
      }),
    );
  });
});

test.each<[what: string, verdict: unknown, came: string]>([
  ["a promise", Promise.resolve(false), "an object"],
  ["nothing", undefined, "undefined"],
  ["a number", 1, "1"],
])("a function that returns %s is told so", (_what, verdict, came) => {
  expect(() => isStored((() => verdict) as never, { status: 200, headers: {} })).toThrow(
    `idempotency.store: expected a function that returns true or false, got ${came}`,
  );
});
