import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { resolveIdempotencyOptions } from "../../src/http/options.ts";
import { resolveStoredHeaders } from "../../src/http/stored-answer.ts";
import { parseIdempotencyKey } from "../../src/index.ts";
import { problemFor } from "../../src/problem.ts";

const printable = Array.from({ length: 95 }, (_, i) => String.fromCharCode(32 + i));
const texts = fc.string({ unit: fc.constantFrom(...printable), minLength: 1, maxLength: 255 });
const bareTexts = fc.string({
  unit: fc.constantFrom(...printable.filter((char) => !' ",;'.includes(char))),
  minLength: 1,
  maxLength: 255,
});
/** The serialisation of RFC 8941, section 4.1.6. */
const quote = (text: string) => `"${text.replace(/["\\]/g, "\\$&")}"`;
const key = (text: string) => ({ kind: "key", key: text });

describe("properties", () => {
  test("a string of RFC 8941 is read back, whatever it holds", () => {
    fc.assert(
      fc.property(texts, (text) => {
        expect(parseIdempotencyKey([quote(text)])).toEqual(key(text));
      }),
      { numRuns: 1_000 },
    );
  });

  test("quoted and bare are one key", () => {
    fc.assert(
      fc.property(bareTexts, (text) => {
        expect(parseIdempotencyKey([text])).toEqual(key(text));
        expect(parseIdempotencyKey([quote(text)])).toEqual(key(text));
      }),
      { numRuns: 1_000 },
    );
  });

  test("a key is always 1 to 255 printable characters, and no other outcome has the value", () => {
    const lines = fc.array(
      fc.oneof(
        fc.string({ unit: "binary", maxLength: 600 }),
        fc.string({ unit: fc.constantFrom('"', "\\", ",", ";", " ", "\t", "a", "é") }),
      ),
      { maxLength: 3 },
    );
    fc.assert(
      fc.property(lines, (values) => {
        const parsed = parseIdempotencyKey(values);
        if (parsed.kind === "key") expect(parsed.key).toMatch(/^[ -~]{1,255}$/);
        else expect(["missing", "invalid"]).toContain(parsed.kind);
      }),
      { numRuns: 2_000 },
    );
  });
});

test("a request without the header has none, as `headers.get` says it, too", () => {
  for (const none of [null, undefined, [], "", " "]) {
    expect(parseIdempotencyKey(none)).toEqual({ kind: "missing" });
  }
});

test.each([
  ["8e03978e-40d5-43dd-bc93-6894a57f9324", "8e03978e-40d5-43dd-bc93-6894a57f9324"],
  ['"8e03978e"', "8e03978e"],
  ['  "8e03978e"\t', "8e03978e"],
  [" a\t", "a"],
  ['"a\\"b"', 'a"b'],
  ['"a\\\\b"', "a\\b"],
  ["a\\b", "a\\b"],
  ['"a, b;c"', "a, b;c"],
  ['" "', " "],
  ["a:b/c=", "a:b/c="],
])("%s is a key", (line, text) => {
  expect(parseIdempotencyKey([line])).toEqual(key(text));
});

test.each(["x", '"', "\\", " "])("255 times %j, quoted, is a key", (char) => {
  expect(parseIdempotencyKey([quote(char.repeat(255))])).toEqual(key(char.repeat(255)));
});

test("255 characters without quotes are a key", () => {
  expect(parseIdempotencyKey(["x".repeat(255)])).toEqual(key("x".repeat(255)));
});

test.each([
  ["no line", []],
  ["an empty line", [""]],
  ["whitespace", [" \t "]],
])("%s: the key is missing", (_what, lines) => {
  expect(parseIdempotencyKey(lines)).toEqual({ kind: "missing" });
});

test.each<[what: string, lines: string[]]>([
  ["two lines", ["secret", "secret"]],
  ["two empty lines", ["", ""]],
  ["a string over two lines", ['"secret', 'secret"']],
  ["a list", ["secret, other"]],
  ["a list without a space", ["secret,other"]],
  ["parameters after a space", ["secret ;a"]],
  ["a list of strings", ['"secret" , "other"']],
  ["parameters of a token", ["secret;a=1"]],
  ["parameters of a string", ['"secret"; a=1']],
  ["something behind the string", ['"secret" other']],
  ["a string of no characters", ['""']],
  ["256 characters", ["x".repeat(256)]],
  ["256 quoted characters", [`"${"x".repeat(256)}"`]],
  ["a space", ["secret key"]],
  ["a double quote", ['sec"ret']],
  ["a tab within", ["sec\tret"]],
  ["a tab within a string", ['"sec\tret"']],
  ["latin-1", ["secrét"]],
  ["a no-break space around it", ["\u00a0secret\u00a0"]],
  ["nothing but a no-break space", ["\u00a0"]],
  ["a line end", ["secret\n"]],
  ["a control character", ["sec\u0000ret"]],
  ["a string that is not closed", ['"secret']],
  ["a single quote mark", ['"']],
  ["another escape", ['"sec\\ret"']],
  ["an escaped closing quote", ['"secret\\"']],
])("%s: the key is invalid", (_what, lines) => {
  expect(parseIdempotencyKey(lines)).toEqual({
    kind: "invalid",
    why: expect.stringContaining("Send one key"),
  });
});

test("a line may be given as it is, or not at all", () => {
  expect(parseIdempotencyKey('"8e03"')).toEqual(key("8e03"));
  expect(parseIdempotencyKey(undefined)).toEqual({ kind: "missing" });
});

test("a long line is read in linear time", () => {
  const started = performance.now();
  for (const unit of ["\\", " ", '"', "a ", '\\"']) {
    parseIdempotencyKey([`"${unit.repeat(500_000)}`]);
    parseIdempotencyKey([`a${unit.repeat(500_000)}`]);
  }
  // By the square of the length this takes minutes.
  expect(performance.now() - started).toBeLessThan(10_000);
});

const resolve = (options: unknown, acquireTimeoutMs = 1_000) =>
  resolveIdempotencyOptions(options as never, acquireTimeoutMs);
const submissionId = () => "cart-7:3";

test("the defaults are those of the documentation", () => {
  const resolved = {
    key: "optional",
    submissionId: undefined,
    fingerprint: undefined,
    retainMs: 86_400_000,
    store: "success",
    storedHeaders: resolveStoredHeaders(undefined),
    maxBodyBytes: 65_536,
    waitMs: 5_000,
    docs: undefined,
    acquireTimeoutMs: 1_000,
  };
  expect(resolve({})).toEqual(resolved);
  const names = Object.keys({ ...resolved, replayHeaders: undefined });
  const options = names.filter((name) => !/^(storedHeaders|acquireTimeoutMs)$/.test(name));
  const absent = Object.fromEntries(options.map((name) => [name, undefined]));
  expect(resolve(absent)).toEqual(resolved);
});

test("what is given is kept", () => {
  const fingerprint = () => 7;
  const store = () => true;
  const options = { key: "ignored", submissionId, fingerprint, retainMs: 2_000, store } as const;
  const bounds = { maxBodyBytes: 1_048_576, waitMs: 30_000 };
  expect(resolve({ ...options, ...bounds, replayHeaders: ["X-Order"] })).toMatchObject({
    ...options,
    ...bounds,
    storedHeaders: resolveStoredHeaders(["x-order"]),
  });
  expect(resolve({ key: "required", store: "final", maxBodyBytes: 0 })).toMatchObject({
    key: "required",
    store: "final",
    maxBodyBytes: 0,
  });
});

test.each([
  ["https://shop.example", "https://shop.example/"],
  ["http://shop.example/docs#once", "http://shop.example/docs#once"],
  [
    'https://shop.example/a b">,<\u00e9?q="<>#">',
    "https://shop.example/a%20b%22%3E,%3C%C3%A9?q=%22%3C%3E#%22%3E",
  ],
])("the docs %s are safe within a header", (docs, href) => {
  expect(resolve({ docs }).docs).toBe(href);
  expect(href).toMatch(/^[!#-;=?-~]+$/);
});

test("an answer is kept for twice the budget of the lock's acquire at least", () => {
  expect(resolve({ retainMs: 1_000 }, 0).retainMs).toBe(1_000);
  expect(resolve({ retainMs: 300_000 }, 150_000).retainMs).toBe(300_000);
  expect(() => resolve({ retainMs: 299_999 }, 150_000)).toThrow(/from 300000 to/);
});

// The documents themselves: test/http/once-refusals.test.ts.
describe("the problem of a refusal", () => {
  const refusal = {
    ...{ reason: "contended" as const, expiresInMs: 60_000, sameSubmission: false },
    ...{ answerUnavailable: false, isCooldown: true },
  };
  const audience = { docs: "https://shop.example/docs#once", isDerived: false, prefersPage: false };

  test("of a cooldown tells that the order before has ended", () => {
    expect(problemFor("submit_contended", refusal, audience).body).toContain("has just ended");
  });

  test("has headers that no application can change", () => {
    const { headers } = problemFor("submit_contended", refusal, audience);
    expect(() => Object.assign(headers, { "Retry-After": "60" })).toThrow(TypeError);
  });
});
