import { runInNewContext } from "node:vm";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { canonicalJson } from "../../src/canonical-json.ts";
import { fingerprintFor, without } from "../../src/http/fingerprint.ts";
import { fingerprintOf, MemoryStore } from "../../src/index.ts";
import { hash22 } from "../../src/lock/submission.ts";
import { closeLocks, openLock } from "../support/locks.ts";

const idHash = hash22("cart-7");
const of = (value: unknown) => fingerprintFor(idHash, value);
const json = fc.jsonValue({ maxDepth: 5 });
const noFingerprint = { name: "NoFingerprintError", code: "SUBMIT_LOCK_NO_FINGERPRINT" };

/** The same JSON, with the members of each object in another order. */
function reversed(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(reversed);
  if (typeof value !== "object" || value === null) return value;
  const members = Object.entries(value).map(([key, member]) => [key, reversed(member)]);
  return Object.fromEntries(members.reverse());
}

/** An array, or an object, in as many others as `depth` says. */
const nested = (depth: number, [open, close]: readonly [string, string]) =>
  JSON.parse(`${open.repeat(depth)}1${close.repeat(depth)}`);

class Order {
  readonly id: number;
  constructor(id: number) {
    this.id = id;
  }
}

describe("canonical JSON", () => {
  test("is JSON of the same value, so two values never share it", () => {
    fc.assert(
      fc.property(json, (value) => {
        expect(JSON.parse(canonicalJson(value))).toStrictEqual(JSON.parse(JSON.stringify(value)));
      }),
      { numRuns: 1_000 },
    );
  });

  test("does not depend on the order of keys", () => {
    fc.assert(
      fc.property(json, (value) => canonicalJson(reversed(value)) === canonicalJson(value)),
    );
  });

  test.each<[what: string, value: unknown, text: string]>([
    [
      "sorts keys by code unit, not by alphabet",
      { b: 1, a: 2, B: 3, é: 4, ﬀ: 5, "😀": 6, 10: 7, 9: 8 },
      '{"10":7,"9":8,"B":3,"a":2,"b":1,"é":4,"😀":6,"ﬀ":5}',
    ],
    ["keeps arrays in order", [3, 1, 2], "[3,1,2]"],
    ["prints 1.0 as 1", JSON.parse("[1.0,1e3,-0,0.10,1e21]"), "[1,1000,0,0.1,1e+21]"],
    [
      "leaves out undefined, functions and symbols, but not null",
      { a: undefined, b: () => 1, c: Symbol("c"), d: null },
      '{"d":null}',
    ],
    ["makes them null in an array", [undefined, () => 1, Symbol("c")], "[null,null,null]"],
    ["makes a hole null", new Array(2), "[null,null]"],
    ["asks toJSON", { at: new Date(0) }, '{"at":"1970-01-01T00:00:00.000Z"}'],
    ["goes on with what toJSON gives", { toJSON: () => ({ b: 1, a: 2 }) }, '{"a":2,"b":1}'],
    ["leaves out what toJSON leaves out", { a: { toJSON: () => undefined } }, "{}"],
    ["takes a toJSON that is no function for a key", { toJSON: 1 }, '{"toJSON":1}'],
    ["takes an instance by its own members", new Order(7), '{"id":7}'],
    ["takes an object without a prototype", Object.create(null), "{}"],
    ["takes an object of another realm", runInNewContext("({})"), "{}"],
    [
      "writes bytes in base64",
      { a: Buffer.from("hi"), b: new Uint8Array([255]) },
      '{"a":xaGk=,"b":x/w==}',
    ],
    ["writes the bytes of a view alone", new Uint8Array([1, 2, 3]).subarray(1, 2), "xAg=="],
    ["escapes what JSON escapes", { 'a"': "b\\\n" }, '{"a\\"":"b\\\\\\n"}'],
    ["escapes a line end", "a\n", '"a\\n"'],
    ["escapes half a character", "\ud800", '"\\ud800"'],
  ])("%s", (_what, value, text) => {
    expect(canonicalJson(value)).toBe(text);
  });

  test("takes __proto__ for a key like any other, and sets no prototype", () => {
    const body = JSON.parse('{"__proto__":{"admin":true},"constructor":{"prototype":1}}');
    expect(canonicalJson(body)).toBe('{"__proto__":{"admin":true},"constructor":{"prototype":1}}');
    expect(Reflect.get({}, "admin")).toBeUndefined();
  });

  test("reads no inherited member", () => {
    expect(
      canonicalJson(Object.create({ inherited: 1 }, { own: { value: 2, enumerable: true } })),
    ).toBe('{"own":2}');
  });

  test("asks a bigint's toJSON where somebody gave it one", () => {
    Reflect.set(BigInt.prototype, "toJSON", () => "seven");
    try {
      expect(canonicalJson([7n])).toBe('["seven"]');
    } finally {
      Reflect.deleteProperty(BigInt.prototype, "toJSON");
    }
  });

  test("goes 64 levels deep", () => {
    for (const brackets of [
      ["[", "]"],
      ['{"a":', "}"],
    ] as const) {
      expect(canonicalJson(nested(64, brackets))).toContain("1");
      expect(() => canonicalJson(nested(65, brackets))).toThrow(/deeper than 64 levels/);
    }
  });
});

const circle: Record<string, unknown> = {};
circle["self"] = circle;
const nest = (levels: number, value: unknown): unknown =>
  levels === 0 ? value : [nest(levels - 1, value)];

/** Each part of a form with `attachFieldsToBody: true` has the form in it. */
function formOfParts(): object {
  const fields: Record<string, object> = {};
  fields["cart"] = { fieldname: "cart", fields, mimetype: "text/plain", type: "field", value: "7" };
  const toBuffer = async () => Buffer.from("secret");
  fields["photo"] = { _buf: Buffer.from("secret"), fields, toBuffer, type: "file" };
  return fields;
}

test.each<[what: string, value: unknown, why: RegExp]>([
  ["undefined", undefined, /got undefined/],
  ["a function", () => 1, /got function/],
  ["a symbol", Symbol("secret"), /got symbol/],
  ["a toJSON that gives nothing", { toJSON: () => undefined }, /whose toJSON returns nothing/],
  ["a bigint", { total: 7n }, /bigint/],
  ["a circle", circle, /in a circle.*attachFieldsToBody/],
  ["a circle below the client's depth", nest(70, circle), /in a circle/],
  ["a part that @fastify/multipart leaves", formOfParts(), /in a circle/],
  [
    "an object whose toJSON has no end",
    new (class Endless {
      toJSON() {
        return [this];
      }
    })(),
    /deeper/,
  ],
  ["100 000 nested arrays", nested(100_000, ["[", "]"]), /deeper than 64 levels/],
  ["a number that JSON.parse makes infinite", JSON.parse('{"a":1e400}'), /not finite/],
  ["a number that is none", [Number.NaN], /not finite/],
  ["a date that is none", { at: new Date("tomorrow") }, /a date is not valid/],
  ["a toJSON that gives null", [{ toJSON: () => null }], /an object that is null there/],
  ["a Map with a member", Object.assign(new Map(), { a: 1 }), /a Map, a Set or a promise/],
  ["a Map", { order: new Map([["secret", 1]]) }, /a Map, a Set or a promise/],
  ["a Set", [new Set(["secret"])], /not in its members/],
  ["a promise", Promise.resolve("secret"), /a promise/],
  ["an ArrayBuffer", new ArrayBuffer(6), /not in its members/],
  ["search parameters", new URLSearchParams("a=secret"), /not in its members/],
])("%s has no fingerprint, and the message says why", (_what, value, why) => {
  let error: unknown;
  try {
    of(value);
  } catch (thrown) {
    error = thrown;
  }
  // How deep a payload is, and how large its numbers, the client decides.
  const status = /nested deeper|not finite|not valid/.test((error as Error).message) ? 422 : 500;
  expect(error).toMatchObject({ ...noFingerprint, status, statusCode: status, expose: false });
  expect((error as Error).message).toMatch(why);
  expect((error as Error).message).not.toContain("secret");
});

const long = "x".repeat(70_000);

describe("of a content of more than 65 536 characters", () => {
  test("the order of keys counts, in any depth, and nothing else is sorted", () => {
    const one = { long, b: [{ d: 1, c: 2 }] };
    expect(canonicalJson(one)).toBe(JSON.stringify(one));
    expect(of(one)).not.toBe(of(reversed(one)));
    expect(of(one)).toBe(of(structuredClone(one)));
  });

  test("the bound is on the content, and not on the spelling of its members", () => {
    const text = (length: number) => ({ b: 1, a: "x".repeat(length) });
    const isSorted = (length: number) => of(text(length)) === of(reversed(text(length)));
    const longest = Array.from({ length: 65_536 }, (_, i) => i).findLast(isSorted) ?? 0;
    expect(longest).toBeGreaterThan(65_500);
    expect([longest + 1, 70_000, 200_000].some(isSorted)).toBe(false);
  });

  test.each<[what: string, value: unknown]>([
    ["a Map", new Map([["a", 1]])],
    ["a Set", new Set([1])],
    ["Infinity, which JSON makes null,", Number.POSITIVE_INFINITY],
    ["a bigint", 1n],
    ["a promise", Promise.resolve()],
    ["100 levels", nested(100, ["[", "]"])],
  ])("%s is refused behind it and before it", (_what, value) => {
    expect(() => of([long, value])).toThrow(expect.objectContaining(noFingerprint));
    expect(() => of([value, long])).toThrow(expect.objectContaining(noFingerprint));
  });

  test("bytes equal no other content", () => {
    const bytes = Buffer.from("hi");
    const others = [
      bytes,
      JSON.parse(JSON.stringify(bytes)),
      "xaGk=",
      "hi",
      new DataView(new ArrayBuffer(2)),
    ];
    expect(new Set(others.map((each) => of([long, each]))).size).toBe(others.length);
  });

  test("what JSON leaves out is left out", () => {
    expect(of({ long, a: undefined })).toBe(of({ long }));
    expect(of([long, undefined])).toBe(of([long, null]));
  });
});

test("without some members, a body is the rest of it, and nothing else is changed", () => {
  const body = JSON.parse('{"a":1,"__proto__":2,"captcha":3,"deep":{"captcha":4}}');
  expect(JSON.stringify(without(body, ["captcha", "toString"]))).toBe(
    '{"a":1,"__proto__":2,"deep":{"captcha":4}}',
  );
  const kept = [new Map([["captcha", 1]]), ["captcha"], Buffer.from("captcha"), "captcha", null];
  for (const each of kept) expect(without(each, ["captcha", "0", "length"])).toBe(each);
});

describe("a fingerprint", () => {
  test("is 22 characters of the id's hash and the canonical JSON", () => {
    expect(of({ b: 1, a: 2 })).toBe(hash22(`${idHash}:{"a":2,"b":1}`));
    expect(of({})).toMatch(/^[\w-]{22}$/);
  });

  test("is another one for another id", () => {
    expect(fingerprintFor(hash22("cart-8"), { a: 1 })).not.toBe(of({ a: 1 }));
  });

  // Section 6.2 of the Agentic Commerce Protocol's checkout, and what is no JSON.
  test("tells apart what is not the same payload", () => {
    const different: unknown[] = [
      ...[{}, { a: null }, { a: "1" }, { a: 1 }, { a: [1, 2] }, { a: [2, 1] }],
      ...[[], [null], ["a", "b"], ["a,b"], [["a"], "b"], [Buffer.from("hi")]],
      ...[null, "", "null", "{}", "aGk=", "xaGk=", "hi", 1, true],
      ...[Buffer.from("hi"), Buffer.from("{}"), Buffer.alloc(0)],
      ...["\ud800", "\udc00", "\ufffd"],
    ];
    expect(new Set(different.map(of)).size).toBe(different.length);
  });

  test("is the same for bytes, however they are held", () => {
    expect(of(new Uint8Array([104, 105]))).toBe(of(Buffer.from("hi")));
  });
});

describe("the fingerprint of the main entry, for once", () => {
  test("is equal for members in another order, and is a mismatch for other content", async () => {
    const lock = openLock({ store: new MemoryStore() });
    const pay = (content: unknown) =>
      lock.once("ada", { id: "cart 7", fingerprint: fingerprintOf(content) }, () => "paid");
    await pay({ cart: 7, lines: [{ sku: "a", count: 2 }] });
    const again = await pay({ lines: [{ count: 2, sku: "a" }], cart: 7 });
    expect(again).toMatchObject({ value: "paid", replayed: true });
    const other = pay({ lines: [{ count: 3, sku: "a" }], cart: 7 });
    await expect(other).rejects.toMatchObject({ code: "SUBMIT_LOCK_MISMATCHED" });
    await closeLocks();
  });

  test("is refused, as by a guard, for content that cannot be compared", () => {
    const error = { code: "SUBMIT_LOCK_NO_FINGERPRINT" };
    expect(() => fingerprintOf(new Map())).toThrow(expect.objectContaining(error));
    expect(() => fingerprintOf([Number.POSITIVE_INFINITY])).toThrow(
      expect.objectContaining({ status: 422 }),
    );
  });
});
