import { runInNewContext } from "node:vm";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { canonicalJson, fingerprintOf } from "../../src/http/fingerprint.ts";
import { hash22 } from "../../src/lock/submission.ts";

const idHash = hash22("cart-7");
const of = (value: unknown) => fingerprintOf(idHash, value);
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
    ["tells Infinity and NaN from null", [Number.NaN, -1 / 0, 1 / 0], "[NaN,-Infinity,Infinity]"],
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
  ["a Map", { order: new Map([["secret", 1]]) }, /a Map or a promise/],
  ["a Set", [new Set(["secret"])], /without members/],
  ["a promise", Promise.resolve("secret"), /a promise/],
  ["an ArrayBuffer", new ArrayBuffer(6), /no plain object/],
  ["search parameters", new URLSearchParams("a=secret"), /no plain object/],
])("%s has no fingerprint, and the message says why", (_what, value, why) => {
  let error: unknown;
  try {
    of(value);
  } catch (thrown) {
    error = thrown;
  }
  // How deep a payload is, the client decides.
  const status = (error as Error).message.includes("nested deeper") ? 422 : 500;
  expect(error).toMatchObject({ ...noFingerprint, status, statusCode: status, expose: false });
  expect((error as Error).message).toMatch(why);
  expect((error as Error).message).not.toContain("secret");
});

describe("a fingerprint", () => {
  test("is 22 characters of the id's hash and the canonical JSON", () => {
    expect(of({ b: 1, a: 2 })).toBe(hash22(`${idHash}:{"a":2,"b":1}`));
    expect(of({})).toMatch(/^[\w-]{22}$/);
  });

  test("is another one for another id", () => {
    expect(fingerprintOf(hash22("cart-8"), { a: 1 })).not.toBe(of({ a: 1 }));
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
