import fc from "fast-check";

/** A text of any length: `unit` again and again between `open` and `close`. */
export interface Shape {
  readonly open: string;
  /** `#` is the number of the repetition. */
  readonly unit: string;
  readonly separator: string;
  /** Follows all units as often as there are, as brackets do. */
  readonly mirror: string;
  readonly close: string;
}

/** About `length` bytes of a shape. */
export function textOf({ close, mirror, open, separator, unit }: Shape, length: number): string {
  const room = length - open.length - close.length;
  const units: string[] = [];
  for (let used = 0; used < room || units.length === 0; ) {
    // Its digits count, too: half a million numbers are three times as long as their places.
    const next = unit.replaceAll("#", `${units.length}`);
    units.push(next);
    used += Math.max(1, Buffer.byteLength(next + separator + mirror));
  }
  return open + units.join(separator) + mirror.repeat(units.length) + close;
}

/** What a client can write into one input. */
interface Grammar {
  readonly tokens: readonly string[];
  readonly opens?: readonly string[];
  readonly closes?: readonly string[];
  readonly separators?: readonly string[];
}

const anywhere = ["", "a", "#", " ", ",", ";", "=", '"', "\\", "/", "*", ":", "(", "[", "]", "-"];

const header: Grammar = {
  tokens: [...anywhere.slice(1), "\t", "%41", "\u00e9", "q=", ";q=0.5", "text/html", "gzip", "*/*"],
  opens: [...anywhere, "text/html", "gzip", "application/json", "multipart/form-data; boundary="],
  closes: [...anywhere, ";q=0", "br"],
  separators: ["", "", ",", ";", " ", ", ", "; "],
};

const query: Grammar = {
  tokens: ["a", "#", "&", "=", "[", "]", "[]", ".", "+", "%", "%41", "%5B", "%E9", "a=1", "a#=1"],
  opens: ["", "a=", "a[", "&", "#="],
  closes: ["", "=", "]", "&", "=1"],
  separators: ["", "&", "&", ";"],
};

const anyText: Grammar = {
  ...header,
  tokens: [...header.tokens, "\r\n", "\n", "\u20ac", "\ud83d\ude00", "\0", "{", "}", "<", "&"],
};

const values = [
  '"a"',
  '"#"',
  "#",
  "1e5",
  "0.#",
  "null",
  "{}",
  "[]",
  '{"a":1}',
  '{"b#":[1]}',
  '"\\u0041"',
  '""',
  '"\u20ac"',
];
const members = [
  '"a":1',
  '"#":1',
  '"k#":"v"',
  '"z#k":{}',
  '"__proto__":1',
  '"\u20ac#":[]',
  '"\\n#":null',
];

/** JSON: lists, objects, long texts, and what is not JSON. */
const json: readonly Grammar[] = [
  { tokens: values, opens: ["[", '{"a":[', "[[["], closes: ["]", "]}", "]]]"], separators: [","] },
  { tokens: members, opens: ["{", '[{"a":{'], closes: ["}", "}}]"], separators: [","] },
  {
    tokens: ["a", " ", "\\n", "\\u00e9", "\u20ac", "\\\\", "\\ud800"],
    opens: ['"', '{"a":"', '{"'],
    closes: ['"', '"}', '":1}'],
  },
  { ...anyText, tokens: [...anyText.tokens, ...values] },
];

/** The description of a record. */
const recordHeaders: Grammar = {
  tokens: ['"k#":"v"', '"vary":"a"', '"k":["#"]'],
  opens: ["{"],
  closes: ["}"],
  separators: [","],
};

const boundary = "XX-boundary";
const disposition = `--${boundary}\r\nContent-Disposition: form-data; name="`;
const part = (name: string, more = "", body = "v") =>
  `${disposition}${name}"${more}\r\n\r\n${body}\r\n`;
const file = '; filename="f.txt"\r\nContent-Type: text/plain';
const end = `--${boundary}--\r\n`;

/** Multipart: many parts, one long name, one long header, one long value. */
const multipart: readonly Grammar[] = [
  {
    tokens: ["a", "#", "a#", "a[]", "a[#]", "a[b][#]", ""].flatMap((name) => [
      part(name),
      part(name, "", ""),
      part(name, file),
      part(name, '; filename="#"'),
    ]),
    closes: [end, ""],
  },
  { ...header, opens: [disposition], closes: [`"\r\n\r\nv\r\n${end}`] },
  { ...header, opens: [`${disposition}a"; filename="`], closes: [`"\r\n\r\nv\r\n${end}`] },
  { ...header, opens: [`${disposition}a"\r\nContent-Type: `], closes: [`\r\n\r\nv\r\n${end}`] },
  {
    tokens: [...anyText.tokens, "\r", "\r\n-", "\r\n--", `\r\n--${boundary.slice(0, -1)}`],
    opens: [`${disposition}a"\r\n\r\n`, `${disposition}a"${file}\r\n\r\n`, ""],
    closes: [`\r\n${end}`, ""],
  },
];

const form: Grammar = { ...query, tokens: [...query.tokens, "\u20ac", "a[b]=1", "a[#]=1"] };

/** Where a text of the client's is put, and the longest that is admitted there. */
export interface Input {
  readonly grammars: readonly Grammar[];
  /** In bytes: the default of Node.js, of the parsers or of the guard. */
  readonly admitted: number;
  /** A header's name, or the type of a body. */
  readonly header?: string;
  readonly type?: string;
}

/** Headers are also sent longer than Node.js admits, so that a square is far from noise. */
const ofHeader = (name: string): Input => ({ header: name, grammars: [header], admitted: 15_000 });
const ofBody = (type: string, ...grammars: Grammar[]): Input => ({
  type,
  grammars,
  admitted: 1_000_000,
});

export const inputs = {
  "Idempotency-Key": ofHeader("idempotency-key"),
  Accept: ofHeader("accept"),
  "Accept-Encoding": ofHeader("accept-encoding"),
  "Content-Type": ofHeader("content-type"),
  "Content-Encoding": ofHeader("content-encoding"),
  "a header that userId reads": ofHeader("x-user"),
  "a header that submissionId reads": ofHeader("x-cart"),
  query: { grammars: [query], admitted: 15_000 },
  json: ofBody("application/json", ...json),
  form: ofBody("application/x-www-form-urlencoded", form),
  text: ofBody("text/plain", anyText),
  bytes: ofBody("application/octet-stream", anyText),
  multipart: ofBody(`multipart/form-data; boundary=${boundary}`, ...multipart),
  "an answer that echoes": { grammars: [anyText, ...json], admitted: 60_000 },
  // Few headers are kept, and none is longer than a request's can be.
  "a record's headers": { grammars: [recordHeaders], admitted: 60_000 },
  "a record's value": { grammars: json, admitted: 1_000_000 },
} satisfies Record<string, Input>;

export type InputName = keyof typeof inputs;

const oneOf = (texts: readonly string[]) => fc.constantFrom(...texts);

function shapesOf({ tokens, opens = [""], closes = [""], separators = [""] }: Grammar) {
  return fc.record({
    open: oneOf(opens),
    // Half of them are one token alone: most squares are.
    unit: fc.oneof(
      oneOf(tokens),
      fc.array(oneOf(tokens), { minLength: 2, maxLength: 4 }).map((parts) => parts.join("")),
    ),
    separator: oneOf(separators),
    mirror: fc.oneof({ weight: 9, arbitrary: fc.constant("") }, oneOf(["]", "}", ")", '"', "]}"])),
    close: oneOf(closes),
  });
}

/** A text at one of the inputs. */
export interface Pumped {
  readonly input: InputName;
  readonly shape: Shape;
}

export function pumped(names: readonly InputName[]): fc.Arbitrary<Pumped> {
  return fc.constantFrom(...names).chain((input) =>
    fc.record({
      input: fc.constant(input),
      shape: fc.constantFrom<Grammar>(...inputs[input].grammars).chain(shapesOf),
    }),
  );
}

const shape = (given: Partial<Shape>): Shape => {
  return { open: "", unit: "a", separator: "", mirror: "", close: "", ...given };
};

/** Squares that the sources, or a library that they called, once had. */
export const known: readonly Pumped[] = [
  { input: "form", shape: shape({ separator: "&" }) },
  { input: "query", shape: shape({ separator: "&" }) },
  { input: "multipart", shape: shape({ unit: part("a"), close: end }) },
  { input: "Accept", shape: shape({ open: '"', unit: "," }) },
  { input: "Accept-Encoding", shape: shape({ open: "a", unit: " ", close: "b" }) },
];
