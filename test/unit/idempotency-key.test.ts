import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { parseIdempotencyKey } from "../../src/http/idempotency-key.ts";

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

  test("a key is always 1 to 255 printable characters, and no other outcome tells the value", () => {
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
        if (parsed.kind === "invalid") expect(parsed.why).toMatch(/^[ -~]+$/);
      }),
      { numRuns: 2_000 },
    );
  });
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

test.each<[what: string, lines: string[], why: string]>([
  ["two lines", ["secret", "secret"], "came 2 times"],
  ["two empty lines", ["", ""], "came 2 times"],
  ["a string over two lines", ['"secret', 'secret"'], "came 2 times"],
  ["a list", ["secret, other"], "is a list"],
  ["a list without a space", ["secret,other"], "is a list"],
  ["parameters after a space", ["secret ;a"], "holds a space"],
  ["a list of strings", ['"secret" , "other"'], "is a list"],
  ["parameters of a token", ["secret;a=1"], "has parameters"],
  ["parameters of a string", ['"secret"; a=1'], "has parameters"],
  ["something behind the string", ['"secret" other'], "goes on after its closing quote"],
  ["a string of no characters", ['""'], "is an empty string"],
  ["256 characters", ["x".repeat(256)], "is longer than 255 characters"],
  ["256 quoted characters", [`"${"x".repeat(256)}"`], "is longer than 255 characters"],
  ["a space", ["secret key"], "holds a space without being quoted"],
  ["a double quote", ['sec"ret'], "holds a double quote"],
  ["a tab within", ["sec\tret"], "holds a character that is not printable ASCII"],
  ["a tab within a string", ['"sec\tret"'], "holds a character that is not printable ASCII"],
  ["latin-1", ["secrét"], "holds a character that is not printable ASCII"],
  ["a no-break space around it", ["\u00a0secret\u00a0"], "is not printable ASCII"],
  ["nothing but a no-break space", ["\u00a0"], "is not printable ASCII"],
  ["a line end", ["secret\n"], "is not printable ASCII"],
  ["a control character", ["sec\u0000ret"], "is not printable ASCII"],
  ["a string that is not closed", ['"secret'], "is no string of RFC 8941"],
  ["a single quote mark", ['"'], "is no string of RFC 8941"],
  ["another escape", ['"sec\\ret"'], "is no string of RFC 8941"],
  ["an escaped closing quote", ['"secret\\"'], "is no string of RFC 8941"],
])("%s: the key is invalid, and the reason does not tell it", (_what, lines, why) => {
  const parsed = parseIdempotencyKey(lines);
  expect(parsed).toEqual({ kind: "invalid", why: expect.stringContaining(why) });
  expect(JSON.stringify(parsed)).not.toContain("sec");
});

test("a long line is read in linear time", () => {
  const started = performance.now();
  for (const unit of ["\\", " ", '"', "a ", '\\"']) {
    parseIdempotencyKey([`"${unit.repeat(500_000)}`]);
    parseIdempotencyKey([`a${unit.repeat(500_000)}`]);
  }
  expect(performance.now() - started).toBeLessThan(2_000);
});
