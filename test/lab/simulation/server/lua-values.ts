/** What Lua does where JavaScript does something else, for as much of it as the scripts use. */

export type LuaValue = string | number | boolean | undefined | LuaTable | LuaObject;
/** An array without the first element, so that an index is Lua's own. */
type LuaTable = LuaValue[];
export interface LuaObject {
  readonly [member: string]: LuaValue | ((...args: never[]) => LuaValue);
}

/** What Lua raises: Redis answers with it, and keeps whatever the script has written. */
export class LuaError extends Error {
  override readonly name = "LuaError";
}

/** Several values of one function. */
class Values {
  readonly all: readonly LuaValue[];

  constructor(all: readonly LuaValue[]) {
    this.all = all;
  }
}

export function table(values: readonly LuaValue[]): LuaTable {
  return [undefined, ...values];
}

function luaType(value: LuaValue): string {
  return value === undefined ? "nil" : typeof value === "object" ? "table" : typeof value;
}

function isNumeral(text: string): boolean {
  return /^\s*-?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$/.test(text);
}

function number(value: LuaValue): number {
  if (typeof value === "number") return value;
  if (typeof value === "string" && isNumeral(value)) return Number(value);
  throw new LuaError(`attempt to perform arithmetic on a ${luaType(value)} value`);
}

function ordered(one: LuaValue, other: LuaValue): boolean {
  if (typeof one === typeof other && (typeof one === "number" || typeof one === "string")) {
    return true;
  }
  throw new LuaError(`attempt to compare ${luaType(one)} with ${luaType(other)}`);
}

/** What the translated programs call. */
export const operators = {
  truthy: (value: LuaValue) => value !== undefined && value !== false,
  add: (one: LuaValue, other: LuaValue) => number(one) + number(other),
  subtract: (one: LuaValue, other: LuaValue) => number(one) - number(other),
  multiply: (one: LuaValue, other: LuaValue) => number(one) * number(other),
  divide: (one: LuaValue, other: LuaValue) => number(one) / number(other),
  negate: (value: LuaValue) => -number(value),
  less: (one: LuaValue, other: LuaValue) =>
    ordered(one, other) && (one as number) < (other as number),
  lessOrEqual: (one: LuaValue, other: LuaValue) =>
    ordered(one, other) && (one as number) <= (other as number),
  concatenate: (one: LuaValue, other: LuaValue) => {
    // Lua writes a number with 14 digits, which is hardly ever meant.
    if (typeof one === "string" && typeof other === "string") return one + other;
    const odd = typeof one === "string" ? other : one;
    throw new LuaError(`attempt to concatenate a ${luaType(odd)} value`);
  },
  length: (value: LuaValue) => {
    if (Array.isArray(value)) return value.length - 1;
    if (typeof value === "string") return Buffer.byteLength(value);
    throw new LuaError(`attempt to get length of a ${luaType(value)} value`);
  },
  member: (value: LuaValue, name: string | number) => {
    if (typeof value === "object") return (value as Record<string | number, LuaValue>)[name];
    throw new LuaError(`attempt to index a ${luaType(value)} value`);
  },
  values: (...all: LuaValue[]) => new Values(all),
  first: (value: LuaValue | Values) => (value instanceof Values ? value.all[0] : value),
  adjusted: (value: LuaValue | Values) => (value instanceof Values ? value.all : [value]),
};

/** Where a substring begins and ends, as `string.slice` wants it. */
function range(length: number, from: number, to: number): [from: number, to: number] {
  const first = from < 0 ? Math.max(length + from + 1, 1) : Math.max(from, 1);
  const last = to < 0 ? length + to + 1 : Math.min(to, length);
  return [first - 1, Math.max(last, first - 1)];
}

function text(value: LuaValue, of: string): string {
  if (typeof value === "string") return value;
  if (typeof value === "number") return String(value);
  throw new LuaError(`bad argument to '${of}' (string expected, got ${luaType(value)})`);
}

const patterns = new Map<string, RegExp>();

/** Of Lua's patterns: one capture from the beginning on, hexadecimal digits, digits, all up to a colon, and what is meant literally. */
function patternOf(pattern: string): RegExp {
  let known = patterns.get(pattern);
  if (known !== undefined) return known;
  const [, inner, end] = /^\^((?:%[xd-]|\[\^:\]\*|[\w:+]|[()](?![()]))+)(\$?)$/.exec(pattern) ?? [];
  if (inner === undefined || inner.split("(").length !== 2) {
    throw new Error(`the pattern ${pattern} is not simulated`);
  }
  const classes = { "%x": "[0-9A-Fa-f]", "%d": "[0-9]", "%-": "-" } as Record<string, string>;
  known = new RegExp(`^${inner.replace(/%./g, (name) => classes[name] ?? "")}${end}`);
  patterns.set(pattern, known);
  return known;
}

/** The functions that the scripts have; anything else of Lua's library is an error. */
export const library = {
  math: {
    floor: (value: LuaValue) => Math.floor(number(value)),
    max: (one: LuaValue, other: LuaValue) => Math.max(number(one), number(other)),
    min: (one: LuaValue, other: LuaValue) => Math.min(number(one), number(other)),
  },
  string: {
    sub: (of: LuaValue, from: number, to = -1) => {
      // By bytes, as Lua counts.
      const bytes = Buffer.from(text(of, "sub"));
      return bytes.subarray(...range(bytes.length, from, to)).toString();
    },
    len: (of: LuaValue) => Buffer.byteLength(text(of, "len")),
    rep: (of: LuaValue, times: number) => text(of, "rep").repeat(times),
    find: (of: LuaValue, sought: LuaValue, from: LuaValue, isPlain: LuaValue) => {
      if (isPlain !== true) throw new Error("only string.find of a plain text is simulated");
      const at = text(of, "find").indexOf(text(sought, "find"), number(from) - 1);
      return at < 0 ? undefined : at + 1;
    },
    match: (of: LuaValue, pattern: LuaValue, from: LuaValue = 1) => {
      const bytes = Buffer.from(text(of, "match")).subarray(number(from) - 1);
      // By bytes here, too: no character of these patterns is longer than one.
      return patternOf(text(pattern, "match")).exec(bytes.toString("latin1"))?.[1];
    },
    format: (format: LuaValue, value: LuaValue) => {
      if (format !== "%.0f") throw new Error("only string.format('%.0f', …) is simulated");
      return number(value).toFixed(0);
    },
  },
  tonumber: (value: LuaValue) => {
    if (typeof value === "number") return value;
    return typeof value === "string" && isNumeral(value) ? Number(value) : undefined;
  },
  type: luaType,
};

/** Those of them that give several values, of which the programs here may use the first only. */
export const givesSeveral: ReadonlySet<string> = new Set(["string.find"]);
