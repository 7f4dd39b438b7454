import * as luaparse from "luaparse";
import { givesSeveral, type LuaValue, operators } from "./lua-values.ts";

/**
 * Translates as much Lua as the scripts use: `local`, functions that return one value or several,
 * assignment, `if`, both kinds of `for`, `return`, tables, calls and the usual operators. So the
 * simulated server runs the very text that is sent to Redis. Anything else is an error, and so is
 * code that would behave differently.
 */
export type LuaProgram = (globals: Record<string, unknown>) => LuaValue;

export function compileLua(source: string): LuaProgram {
  const { body } = luaparse.parse(source, {
    luaVersion: "5.1",
    encodingMode: "pseudo-latin1",
    scope: true,
    ranges: true,
    onCreateNode: (node) => {
      const { range: [at] = [0] } = node as { range?: [number, number] };
      // They cut a call to its first value, and the parser does not report them.
      const isCut = /(?:\breturn|=)\s*\($/.test(source.slice(0, at));
      if (isCut && isOpen(node as luaparse.Expression)) unknown(node);
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

function block(statements: readonly luaparse.Statement[]): string {
  return statements.map(statement).join("");
}

function statement(node: luaparse.Statement): string {
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
      const parameters = node.parameters.map((each) =>
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

function clause(node: luaparse.IfStatement["clauses"][number]): string {
  const condition = node.type === "ElseClause" ? "" : `if (lua.truthy(${value(node.condition)})) `;
  return `${condition}{\n${block(node.body)}}`;
}

function assignment(targets: readonly string[], values: readonly luaparse.Expression[]): string {
  const [first] = values;
  if (first === undefined) return targets.join(", ");
  if (values.length > 1) throw new Error("Lua: only a call assigns several values here");
  if (targets.length === 1) return `${targets[0]} = ${value(first)}`;
  if (!isOpen(first)) throw new Error("Lua: only a call assigns several values here");
  return `[${targets.join(", ")}] = lua.adjusted(${whole(first)})`;
}

function returned(values: readonly luaparse.Expression[]): string {
  const [first] = values;
  if (first === undefined) throw new Error("Lua: a return without a value");
  return values.length === 1 ? whole(first) : `lua.values(${list(values)})`;
}

/** A name as JavaScript knows it: no name of Lua means anything else there. */
function local(node: luaparse.Identifier): string {
  return `$${node.name}`;
}

function target(node: luaparse.Expression): string {
  const base = node.type === "IndexExpression" ? node.base : node;
  if (base.type !== "Identifier" || !isLocal(base)) return unknown(node);
  return value(node);
}

/** Values beside each other, of which none may stand for several. */
function list(nodes: readonly luaparse.Expression[]): string {
  const last = nodes.at(-1);
  if (last !== undefined && isOpen(last)) {
    throw new Error("Lua: a call of several values ends a list");
  }
  return nodes.map(value).join(", ");
}

/** One value: a call that may return several is cut to the first. */
function value(node: luaparse.Expression): string {
  return isOpen(node) ? `lua.first(${whole(node)})` : whole(node);
}

/** An expression with all its values. */
function whole(node: luaparse.Expression): string {
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
      return `[undefined, ${list(node.fields.map((each) => (each.type === "TableValue" ? each.value : unknown(each))))}]`;
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
function isOpen(node: luaparse.Expression): boolean {
  if (node.type !== "CallExpression") return false;
  return isLocal(node.base) || givesSeveral.has(name(node.base));
}

function isLocal(node: luaparse.Expression): boolean {
  return node.type === "Identifier" && (node as { isLocal?: boolean }).isLocal === true;
}

function name(node: luaparse.Expression): string {
  if (node.type === "Identifier") return node.name;
  return node.type === "MemberExpression" ? `${name(node.base)}.${node.identifier.name}` : "";
}

function unknown(node: luaparse.Node): never {
  throw new Error(`Lua: this is not simulated: ${JSON.stringify(node)}`);
}
