import { type Node, parse } from "luaparse";

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
const operators = {
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
const givesSeveral: ReadonlySet<string> = new Set(["string.find"]);

/**
 * Translates as much Lua as the scripts use: `local`, functions that return one value or several,
 * assignment, `if`, both kinds of `for`, `return`, tables, calls and the usual operators. So the
 * simulated server runs the very text that is sent to Redis. Anything else is an error, and so is
 * code that would behave differently.
 */
export type LuaProgram = (globals: Record<string, unknown>) => LuaValue;

export function compileLua(source: string): LuaProgram {
  const { body } = parse(source, {
    luaVersion: "5.1",
    encodingMode: "pseudo-latin1",
    scope: true,
    ranges: true,
    onCreateNode: (node: Node) => {
      const { range: [at] = [0] } = node as { range?: [number, number] };
      // They cut a call to its first value, and the parser does not report them.
      const isCut = /(?:\breturn|=)\s*\($/.test(source.slice(0, at));
      if (isCut && isOpen(node as Node)) unknown(node);
    },
  });
  const make = new Function("lua", "globals", block(body)) as (
    lua: object,
    globals: object,
  ) => LuaValue;
  return (globals) => make(operators, globals);
}

const globals = new Set(["KEYS", "ARGV", "redis", "math", "string", "tonumber", "type"]);

/** How an operator is written in JavaScript. */
const binary: Record<string, (left: string, right: string) => string> = {
  "==": (left, right) => `(${left} === ${right})`,
  "~=": (left, right) => `(${left} !== ${right})`,
  "<": (left, right) => `lua.less(${left}, ${right})`,
  ">": (left, right) => `lua.less(${right}, ${left})`,
  "<=": (left, right) => `lua.lessOrEqual(${left}, ${right})`,
  ">=": (left, right) => `lua.lessOrEqual(${right}, ${left})`,
  "..": (left, right) => `lua.concatenate(${left}, ${right})`,
  "+": (left, right) => `lua.add(${left}, ${right})`,
  "-": (left, right) => `lua.subtract(${left}, ${right})`,
  "*": (left, right) => `lua.multiply(${left}, ${right})`,
  "/": (left, right) => `lua.divide(${left}, ${right})`,
  and: (left, right) => `(($) => lua.truthy($) ? ${right} : $)(${left})`,
  or: (left, right) => `(($) => lua.truthy($) ? $ : ${right})(${left})`,
};
const unary: Record<string, (value: string) => string> = {
  "-": (value) => `lua.negate(${value})`,
  not: (value) => `(!lua.truthy(${value}))`,
  "#": (value) => `lua.length(${value})`,
};

function block(statements: readonly Node[]): string {
  return statements.map(statement).join("");
}

function statement(node: Node): string {
  switch (node.type) {
    case "LocalStatement":
      return `let ${assignment(node.variables.map(local), node.init)};\n`;
    case "AssignmentStatement":
      return `${assignment(node.variables.map(target), node.init)};\n`;
    case "CallStatement":
      return `${value(node.expression)};\n`;
    case "ReturnStatement":
      return `return ${returned(node.arguments)};\n`;
    case "IfStatement":
      return `${node.clauses.map(clause).join(" else ")}\n`;
    case "FunctionDeclaration": {
      if (!node.isLocal || node.identifier?.type !== "Identifier") return unknown(node);
      const parameters = node.parameters.map((each: Node) =>
        each.type === "Identifier" ? local(each) : unknown(each),
      );
      return `const ${local(node.identifier)} = (${parameters.join(", ")}) => {\n${block(node.body)}};\n`;
    }
    case "ForNumericStatement": {
      if (node.step !== null) return unknown(node.step);
      const head = `let i = ${value(node.start)}, to = ${value(node.end)}; i <= to; i++`;
      return `for (${head}) {\nconst ${local(node.variable)} = i;\n${block(node.body)}}\n`;
    }
    case "ForGenericStatement": {
      const [iterator] = node.iterators;
      if (iterator?.type !== "CallExpression" || name(iterator.base) !== "ipairs")
        return unknown(node);
      const [index, element] = node.variables.map(local);
      const head = `let i = 1, all = ${list(iterator.arguments)}; all[i] !== undefined; i++`;
      return `for (${head}) {\nlet ${index} = i, ${element} = all[i];\n${block(node.body)}}\n`;
    }
    default:
      return unknown(node);
  }
}

function clause(node: Node): string {
  const condition = node.type === "ElseClause" ? "" : `if (lua.truthy(${value(node.condition)})) `;
  return `${condition}{\n${block(node.body)}}`;
}

function assignment(targets: readonly string[], values: readonly Node[]): string {
  const [first] = values;
  if (first === undefined) return targets.join(", ");
  if (values.length > 1) throw new Error("Lua: only a call assigns several values here");
  if (targets.length === 1) return `${targets[0]} = ${value(first)}`;
  if (!isOpen(first)) throw new Error("Lua: only a call assigns several values here");
  return `[${targets.join(", ")}] = lua.adjusted(${whole(first)})`;
}

function returned(values: readonly Node[]): string {
  const [first] = values;
  if (first === undefined) throw new Error("Lua: a return without a value");
  return values.length === 1 ? whole(first) : `lua.values(${list(values)})`;
}

/** A name as JavaScript knows it: no name of Lua means anything else there. */
function local(node: Node): string {
  return `$${node.name}`;
}

function target(node: Node): string {
  const base = node.type === "IndexExpression" ? node.base : node;
  if (base.type !== "Identifier" || !isLocal(base)) return unknown(node);
  return value(node);
}

/** Values beside each other, of which none may stand for several. */
function list(nodes: readonly Node[]): string {
  const last = nodes.at(-1);
  if (last !== undefined && isOpen(last)) {
    throw new Error("Lua: a call of several values ends a list");
  }
  return nodes.map(value).join(", ");
}

/** One value: a call that may return several is cut to the first. */
function value(node: Node): string {
  return isOpen(node) ? `lua.first(${whole(node)})` : whole(node);
}

/** An expression with all its values. */
function whole(node: Node): string {
  switch (node.type) {
    case "Identifier":
      if (isLocal(node)) return local(node);
      return globals.has(node.name) ? `globals.${node.name}` : unknown(node);
    case "StringLiteral":
    case "NumericLiteral":
    case "BooleanLiteral":
      return JSON.stringify(node.value);
    case "NilLiteral":
      return "undefined";
    case "MemberExpression":
      if (node.indexer !== ".") return unknown(node);
      return `lua.member(${value(node.base)}, "${node.identifier.name}")`;
    case "IndexExpression":
      return `${value(node.base)}[${value(node.index)}]`;
    case "CallExpression":
      return `${value(node.base)}(${list(node.arguments)})`;
    case "TableConstructorExpression":
      return `[undefined, ${list(node.fields.map((each: Node) => (each.type === "TableValue" ? each.value : unknown(each))))}]`;
    case "UnaryExpression":
      return (unary[node.operator] ?? unknown(node))(value(node.argument));
    case "BinaryExpression":
    case "LogicalExpression":
      return (binary[node.operator] ?? unknown(node))(value(node.left), value(node.right));
    default:
      return unknown(node);
  }
}

/** Whether it is a call that may return several values: of a function of the script, or a few others. */
function isOpen(node: Node): boolean {
  if (node.type !== "CallExpression") return false;
  return isLocal(node.base) || givesSeveral.has(name(node.base));
}

function isLocal(node: Node): boolean {
  return node.type === "Identifier" && (node as { isLocal?: boolean }).isLocal === true;
}

function name(node: Node): string {
  if (node.type === "Identifier") return node.name;
  return node.type === "MemberExpression" ? `${name(node.base)}.${node.identifier.name}` : "";
}

function unknown(node: Node): never {
  throw new Error(`Lua: this is not simulated: ${JSON.stringify(node)}`);
}
