import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  checkAnswer,
  decodeRecord,
  encodeRecord,
  type RecordContent,
} from "../../src/lock/record.ts";
import { hash22, noFingerprint } from "../../src/lock/submission.ts";

const fingerprint = hash22("payload");
const ownerId = "8e03978e-40d5-43dd-bc93-6894a57f9324";
const createdMs = 1_760_000_000_000;
const command = {
  ...{ key: "lock:submit:42", ownerId },
  submission: { id: hash22("cart"), fingerprint },
  identity: { id: hash22("shown"), fingerprint },
};
const encode = (answer: RecordContent) => encodeRecord(command, answer, createdMs);
const decode = (record: unknown) => decodeRecord(record as string, command);
const answerOf = (answer: RecordContent) => decode(encode(answer)).answer;
const bodyOf = (body: RecordContent["body"]) => answerOf({ status: 200, body }).body;

/** The record of an order, with another description behind the fixed head, and another body. */
const withContent = (described: string, body = "hi") =>
  `1${fingerprint}${ownerId}=${described.length.toString(16).padStart(6, "0")}${described}${body}`;
const content = { s: 201, t: createdMs, h: { a: "b" }, b: 2 };

describe("a record", () => {
  test("is what the scripts expect, byte for byte", () => {
    const headers = { location: "/orders/7" };
    const text = '{"s":201,"t":1760000000000,"h":{"location":"/orders/7"},"b":8}{"id":7}';
    const whole = `1${fingerprint}${ownerId}=00003e${text}`;
    expect(encode({ status: 201, headers, body: '{"id":7}' })).toBe(whole);
    expect(encode({ status: 201, headers, body: Buffer.from('{"id":7}') })).toEqual(
      Buffer.from(whole),
    );
    expect(encode({ status: 303 }).slice(59)).toBe('=000022{"s":303,"t":1760000000000,"h":{}}');
    const bytes = encode({ status: 200, body: new Uint8Array([0xff, 0xd8]) });
    expect([...bytes.slice(-2)]).toEqual([0xff, 0xd8]);
  });

  test("gives back what was put into it", () => {
    const headerValue = fc.oneof(fc.string(), fc.array(fc.string(), { maxLength: 3 }));
    const names = fc.oneof(fc.string(), fc.constantFrom("__proto__", "constructor", "toJSON"));
    const answers = fc.record({
      status: fc.integer({ min: 100, max: 599 }),
      headers: fc.dictionary(names, headerValue, { maxKeys: 5 }),
      body: fc.option(fc.uint8Array({ maxLength: 200 }), { nil: undefined }),
    });
    fc.assert(
      fc.property(answers, (answer) => {
        const text = encode(answer);
        expect(String(text.slice(1, 59))).toBe(fingerprint + ownerId);
        const record = decode(text);
        expect(record.createdMs).toBe(createdMs);
        expect(record.answer.status).toBe(answer.status);
        expect(Object.entries(record.answer.headers)).toEqual(Object.entries(answer.headers));
        expect(record.answer.body).toEqual(answer.body && Buffer.from(answer.body));
      }),
      { numRuns: 1_000 },
    );
  });

  test.each([
    ["plain text", "x"],
    ["quotation marks", '"'],
    ["control characters", "\u0001"],
    ["backslashes and line ends", "\\\n"],
    ["umlauts", "ä"],
    ["JSON", '{"a":"b"}'],
    ["JPEG", "\xff\xd8"],
  ])("of 64 KiB of %s is at most 200 bytes longer, and comes back equal", (_what, unit) => {
    const text = unit.repeat(65_536 / Buffer.byteLength(unit));
    for (const body of [text, Buffer.from(text)]) {
      const record = encode({ status: 201, body });
      expect(Buffer.byteLength(record)).toBeLessThan(Buffer.byteLength(text) + 200);
      // `toEqual` takes a second for it.
      expect(Buffer.from(text).equals(decode(record).answer.body ?? Buffer.of())).toBe(true);
    }
  });

  test("without a fingerprint has its owner id at the same place", () => {
    const record = String(
      encodeRecord(
        { ...command, submission: { id: hash22("cart"), fingerprint: noFingerprint } },
        { status: 200 },
        createdMs,
      ),
    );
    expect(record.slice(1, 59)).toBe(noFingerprint + ownerId);
    expect(decode(record).answer.status).toBe(200);
  });

  test("cuts a fraction off the store's time", () => {
    const record = encodeRecord(command, { status: 200 }, createdMs + 0.75);
    expect(decode(record).createdMs).toBe(createdMs);
  });
});

describe("a value", () => {
  const returnedBy = (json: string | undefined) => answerOf({ status: 100, json })?.returned;

  test("is an answer of status 100 without a body, for a reader that knows no values", () => {
    const record = encode({ status: 100, json: '{"number":7}' });
    expect(record.slice(66)).toBe('{"s":100,"t":1760000000000,"h":{},"b":12,"v":1}{"number":7}');
    expect(answerOf({ status: 100, json: "7" })).toMatchObject({ status: 100, headers: {} });
    expect(answerOf({ status: 100, json: "7" })?.body).toBeUndefined();
  });

  test("of any JSON comes back", () => {
    fc.assert(
      fc.property(fc.jsonValue(), (value) => {
        const json = JSON.stringify(value);
        expect(returnedBy(json)).toEqual({ value: JSON.parse(json) });
      }),
    );
  });

  test("that is undefined is a value, and one that is not kept is none", () => {
    expect(returnedBy("")).toEqual({ value: undefined });
    expect(encode({ status: 100, json: "" }).slice(59)).toContain('"b":0,"v":1}');
    expect(returnedBy(undefined)).toBeUndefined();
    expect(answerOf({ status: 200 })?.returned).toBeUndefined();
  });
});

describe("a body", () => {
  test("of any string is what HTTP would send", () => {
    fc.assert(
      fc.property(fc.string({ unit: "binary" }), (body) => {
        expect(Buffer.from(body).equals(bodyOf(body) ?? Buffer.of(0))).toBe(true);
      }),
    );
    expect(bodyOf("half \ud800 a character")).toEqual(Buffer.from("half \ufffd a character"));
  });

  test.each<[what: string, bytes: number[]]>([
    ["a byte order mark", [0xef, 0xbb, 0xbf, 0x7b, 0x7d]],
    ["two byte order marks", [0xef, 0xbb, 0xbf, 0xef, 0xbb, 0xbf]],
    ["a byte order mark of UTF-16", [0xff, 0xfe, 0x41, 0x00]],
    ["NUL and line ends", [0, 13, 10, 0]],
    ["line separators", [0xe2, 0x80, 0xa8, 0xe2, 0x80, 0xa9]],
    ["an encoded surrogate", [0xed, 0xa0, 0x80]],
    ["an overlong NUL", [0xc0, 0x80]],
    ["a character that is cut", [0xf0, 0x9f, 0x98]],
    ["a replacement character", [0xef, 0xbf, 0xbd]],
    ["every byte", Array.from({ length: 256 }, (_, i) => i)],
  ])("with %s comes back byte for byte", (_what, bytes) => {
    expect([...(bodyOf(Uint8Array.from(bytes)) ?? [])]).toEqual(bytes);
  });

  test("that lies within a larger buffer is kept alone", () => {
    expect(bodyOf(Buffer.from("xhix").subarray(1, 3))).toEqual(Buffer.from("hi"));
  });

  test("without bytes is not a body that was not kept", () => {
    expect(bodyOf("")).toEqual(Buffer.alloc(0));
    expect(bodyOf(new Uint8Array())).toEqual(Buffer.alloc(0));
    expect(bodyOf(undefined)).toBeUndefined();
  });
});

describe("rubbish is no record:", () => {
  test("the text that everything else starts from is one", () => {
    expect(decode(withContent(JSON.stringify(content))).answer.status).toBe(201);
  });

  test.each<[what: string, text: unknown]>([
    ["bytes that are none", Buffer.from("1234")],
    ["an empty string", ""],
    ["a lock's value", `${ownerId}:1760000000000000:10000:60000:host%3A1::`],
    ["another version", `2${encode({ status: 200 }).slice(1)}`],
    ["a short fingerprint", `1${withContent(JSON.stringify(content)).slice(2)}`],
    ["JSON that goes on", withContent(`${JSON.stringify(content)}x`)],
    ["a body that goes on", withContent(JSON.stringify(content), "hi!")],
    ["a body that is cut", withContent(JSON.stringify(content), "h")],
    ["a length that is no number", withContent("x").replace("=000001", "=00000z")],
    ["an array", withContent("[]")],
    ["no content", withContent("{}")],
    ["a status of 99", withContent(JSON.stringify({ ...content, s: 99 }))],
    ["a status of 600", withContent(JSON.stringify({ ...content, s: 600 }))],
    ["a status of 200.5", withContent(JSON.stringify({ ...content, s: 200.5 }))],
    ["a status that is a string", withContent(JSON.stringify({ ...content, s: "200" }))],
    ["a time that is a string", withContent(JSON.stringify({ ...content, t: "1" }))],
    ["a time before 1970", withContent(JSON.stringify({ ...content, t: -1 }))],
    ["no headers", withContent(JSON.stringify({ ...content, h: undefined }))],
    ["headers that are an array", withContent(JSON.stringify({ ...content, h: ["a"] }))],
    ["null for headers", withContent(JSON.stringify({ ...content, h: null }))],
    ["a header that is a number", withContent(JSON.stringify({ ...content, h: { a: 1 } }))],
    ["a header of numbers", withContent(JSON.stringify({ ...content, h: { a: [1] } }))],
    ["a header that is an object", withContent(JSON.stringify({ ...content, h: { a: {} } }))],
    ["a length that is a text", withContent(JSON.stringify({ ...content, b: "2" }))],
    ["no length", withContent(JSON.stringify({ ...content, b: undefined }))],
    ["a value that is no JSON", withContent(JSON.stringify({ ...content, v: 1 }))],
    ["deep JSON", withContent(`{"h":${"[".repeat(200_000)}`)],
    ["its members as a prototype", withContent(`{"__proto__":${JSON.stringify(content)}}`)],
  ])("%s", (_what, text) => {
    expect(decode(text).answer.unreadable).toBe("damaged");
  });

  test("a record that is cut anywhere", () => {
    const whole = String(encode({ status: 201, headers: { etag: '"7"' }, body: "{}" }));
    for (let length = 0; length < whole.length; length += 1) {
      expect(decode(whole.slice(0, length)).answer.unreadable).toBe("damaged");
    }
  });

  test("any string, and any change of a record, throws nothing", () => {
    const whole = String(encode({ status: 201, headers: { etag: '"7"' }, body: "{}" }));
    fc.assert(
      fc.property(
        fc.string({ unit: "binary" }),
        (text) => decode(text).answer.unreadable !== undefined,
      ),
    );
    const changes = fc.tuple(fc.nat(whole.length - 1), fc.string({ unit: "binary", maxLength: 3 }));
    fc.assert(
      fc.property(changes, ([at, text]) => {
        decode(whole.slice(0, at) + text + whole.slice(at + 1));
      }),
      { numRuns: 2_000 },
    );
  });
});

test("a header named __proto__ is a header, and reaches no prototype", () => {
  const text = withContent('{"s":200,"t":1,"h":{"__proto__":["admin"],"a":"b"}}', "");
  const headers = decode(text).answer.headers;
  expect(Object.keys(headers)).toEqual(["__proto__", "a"]);
  expect(Object.getPrototypeOf(headers)).toBeNull();
  expect(Reflect.get({}, "0")).toBeUndefined();
});

describe("an answer is checked:", () => {
  test.each<[what: string, answer: RecordContent]>([
    ["a status alone", { status: 204 }],
    ["undefined members", { status: 100, headers: undefined, body: undefined }],
    ["everything", { status: 599, headers: { a: "b", c: ["d", "e"] }, body: "hi" }],
    ["bytes", { status: 200, body: new Uint8Array([1]) }],
    ["headers without a prototype", { status: 200, headers: Object.create(null) }],
  ])("%s is one", (_what, answer) => {
    expect(() => checkAnswer(answer)).not.toThrow();
  });
});
