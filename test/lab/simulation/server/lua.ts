import { givesSeveral, type LuaValue, operators } from "./lua-values.ts";

/**
 * A translator for as much Lua as the scripts use: `local`, functions that give one value or several,
 * assignment, `if`, both kinds of `for`, `return`, tables, calls and the usual operators. So the
 * simulated server runs the very text that is sent to Redis. Whatever is not known here is an error,
 * and so is what would behave differently.
 */
export type LuaProgram = (globals: Record<string, unknown>) => LuaValue;

const token =
  /\s*(?:--[^\n]*\n?|("[^"]*"|'[^']*')|(\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|([A-Za-z_]\w*)|(\.\.|==|~=|<=|>=|[-+*/<>=(){}[\],.#]))/y;

export function compileLua(source: string): LuaProgram {
  return new Translator(tokensOf(source)).program();
}

function tokensOf(source: string): string[] {
  const tokens: string[] = [];
  const text = source.trim();
  token.lastIndex = 0;
  while (token.lastIndex < text.length) {
    const from = token.lastIndex;
    const found = token.exec(text);
    if (found === null)
      throw new Error(`no Lua that is known here: ${text.slice(from, from + 30)}`);
    const [, string, number, name, sign] = found;
    const word = string ?? number ?? name ?? sign;
    if (word !== undefined) tokens.push(word);
  }
  return tokens;
}

const globals = new Set(["KEYS", "ARGV", "redis", "math", "string", "tonumber", "type"]);

/** Cuts a call to its first value. */
const firstOf = "lua.first(";

/** How a comparison is written in JavaScript. */
const comparisons: Record<string, (left: string, right: string) => string> = {
  "==": (left, right) => `(${left} === ${right})`,
  "~=": (left, right) => `(${left} !== ${right})`,
  "<": (left, right) => `lua.less(${left}, ${right})`,
  ">": (left, right) => `lua.less(${right}, ${left})`,
  "<=": (left, right) => `lua.lessOrEqual(${left}, ${right})`,
  ">=": (left, right) => `lua.lessOrEqual(${right}, ${left})`,
};

class Translator {
  readonly #tokens: readonly string[];
  #at = 0;
  /** The names of each block, and whether each is a function's. */
  readonly #blocks: Map<string, boolean>[] = [];
  /** The last expression was nothing but a call of something that may give several values. */
  #isOpen = false;

  constructor(tokens: readonly string[]) {
    this.#tokens = tokens;
  }

  program(): LuaProgram {
    const body = this.#block();
    if (this.#peek() !== undefined) throw new Error(`Lua: unexpected ${this.#peek()}`);
    const make = new Function("lua", "globals", body) as (lua: object, globals: object) => LuaValue;
    return (globals) => make(operators, globals);
  }

  #peek(): string | undefined {
    return this.#tokens[this.#at];
  }

  #next(): string {
    const next = this.#tokens[this.#at++];
    if (next === undefined) throw new Error("Lua: the script ends too early");
    return next;
  }

  #accept(word: string): boolean {
    if (this.#peek() !== word) return false;
    this.#at++;
    return true;
  }

  #expect(word: string): void {
    const next = this.#next();
    if (next !== word) throw new Error(`Lua: expected ${word}, got ${next}`);
  }

  #block(names: readonly string[] = []): string {
    this.#blocks.push(new Map(names.map((name) => [name, false])));
    let body = "";
    for (;;) {
      const next = this.#peek();
      if (next === undefined || ["end", "else", "elseif"].includes(next)) break;
      body += this.#statement();
    }
    this.#blocks.pop();
    return body;
  }

  /** As JavaScript knows it: no name of Lua's means anything else there. */
  #declare(name: string, isFunction = false): string {
    this.#blocks.at(-1)?.set(name, isFunction);
    return `$${name}`;
  }

  #statement(): string {
    if (this.#accept("local")) return this.#local();
    if (this.#accept("if")) return this.#if();
    if (this.#accept("for")) return this.#for();
    if (this.#accept("return")) return this.#return();
    const targets = [this.#postfix()];
    while (this.#accept(",")) targets.push(this.#postfix());
    if (!this.#accept("=")) {
      if (targets.length > 1) throw new Error(`Lua: expected =, got ${this.#peek()}`);
      return `${targets[0]};\n`;
    }
    for (const target of targets) {
      if (!/^\$\w+(\[.*\])?$/.test(target)) throw new Error(`Lua: cannot assign to ${target}`);
    }
    return `${this.#assignment(targets)};\n`;
  }

  #assignment(targets: readonly string[]): string {
    if (targets.length === 1) return `${targets[0]} = ${this.#expression()}`;
    const call = this.#expression(true);
    if (!this.#isOpen) throw new Error("Lua: only a call gives several values here");
    return `[${targets.join(", ")}] = lua.adjusted(${call})`;
  }

  #return(): string {
    const values = [this.#expression(true)];
    while (this.#accept(",")) {
      if (this.#isOpen) throw new Error("Lua: a call among the values of a return");
      values.push(this.#expression());
    }
    if (values.length === 1) return `return ${values[0]};\n`;
    return `return lua.values(${values.join(", ")});\n`;
  }

  #local(): string {
    if (this.#accept("function")) return this.#function();
    const names = [this.#next()];
    while (this.#accept(",")) names.push(this.#next());
    const targets = names.map((name) => `$${name}`);
    const text = this.#accept("=")
      ? `let ${this.#assignment(targets)};\n`
      : `let ${targets.join(", ")};\n`;
    // Only now: a name is not known within its own value.
    for (const name of names) this.#declare(name);
    return text;
  }

  #function(): string {
    const name = this.#declare(this.#next(), true);
    this.#expect("(");
    const parameters: string[] = [];
    while (!this.#accept(")")) {
      parameters.push(this.#next());
      this.#accept(",");
    }
    const body = this.#block(parameters);
    this.#expect("end");
    return `const ${name} = (${parameters.map((each) => `$${each}`).join(", ")}) => {\n${body}};\n`;
  }

  #if(): string {
    let text = `if (lua.truthy(${this.#expression()})) {\n`;
    this.#expect("then");
    text += this.#block();
    for (;;) {
      if (this.#accept("elseif")) {
        text += `} else if (lua.truthy(${this.#expression()})) {\n`;
        this.#expect("then");
        text += this.#block();
      } else if (this.#accept("else")) {
        text += `} else {\n${this.#block()}`;
      } else {
        this.#expect("end");
        return `${text}}\n`;
      }
    }
  }

  #for(): string {
    const index = this.#next();
    if (this.#accept("=")) {
      const from = this.#expression();
      this.#expect(",");
      const to = this.#expression();
      const body = this.#loopBody([index]);
      return `for (let i = ${from}, to = ${to}; i <= to; i++) {\nconst $${index} = i;\n${body}}\n`;
    }
    this.#expect(",");
    const value = this.#next();
    for (const word of ["in", "ipairs", "("]) this.#expect(word);
    const table = this.#expression();
    this.#expect(")");
    const body = this.#loopBody([index, value]);
    return `for (let i = 1, all = ${table}; all[i] !== undefined; i++) {\nlet $${index} = i, $${value} = all[i];\n${body}}\n`;
  }

  #loopBody(names: readonly string[]): string {
    this.#expect("do");
    const body = this.#block(names);
    this.#expect("end");
    return body;
  }

  /** @param isWhole whether a call leaves all its values here, and not the first alone. */
  #expression(isWhole = false): string {
    this.#isOpen = false;
    let left = this.#conjunction();
    while (this.#accept("or")) {
      left = this.#closed(`(($) => lua.truthy($) ? $ : ${this.#conjunction()})(${left})`);
    }
    return this.#isOpen && isWhole ? left.slice(firstOf.length, -1) : left;
  }

  #conjunction(): string {
    let left = this.#comparison();
    while (this.#accept("and")) {
      left = this.#closed(`(($) => lua.truthy($) ? ${this.#comparison()} : $)(${left})`);
    }
    return left;
  }

  #comparison(): string {
    const left = this.#concatenation();
    const compare = comparisons[this.#peek() ?? ""];
    if (compare === undefined) return left;
    this.#at++;
    return this.#closed(compare(left, this.#concatenation()));
  }

  /** Binds to the right. */
  #concatenation(): string {
    const left = this.#sum();
    if (!this.#accept("..")) return left;
    return this.#closed(`lua.concatenate(${left}, ${this.#concatenation()})`);
  }

  #sum(): string {
    let left = this.#product();
    for (;;) {
      if (this.#accept("+")) left = this.#closed(`lua.add(${left}, ${this.#product()})`);
      else if (this.#accept("-")) left = this.#closed(`lua.subtract(${left}, ${this.#product()})`);
      else return left;
    }
  }

  #product(): string {
    let left = this.#unary();
    for (;;) {
      if (this.#accept("*")) left = this.#closed(`lua.multiply(${left}, ${this.#unary()})`);
      else if (this.#accept("/")) left = this.#closed(`lua.divide(${left}, ${this.#unary()})`);
      else return left;
    }
  }

  #unary(): string {
    if (this.#accept("-")) return this.#closed(`lua.negate(${this.#unary()})`);
    if (this.#accept("not")) return this.#closed(`(!lua.truthy(${this.#unary()}))`);
    if (this.#accept("#")) return this.#closed(`lua.length(${this.#unary()})`);
    return this.#postfix();
  }

  #postfix(): string {
    let name = this.#peek() ?? "";
    let value = this.#primary();
    let isOpen = false;
    for (;;) {
      if (this.#accept(".")) {
        const member = this.#next();
        name += `.${member}`;
        value = `lua.member(${value}, "${member}")`;
        isOpen = false;
      } else if (this.#accept("[")) {
        value = `${value}[${this.#expression()}]`;
        this.#expect("]");
        isOpen = false;
      } else if (this.#accept("(")) {
        isOpen = this.#isFunction(name) || givesSeveral.has(name);
        const call = `${value}(${this.#list(")")})`;
        value = isOpen ? `${firstOf}${call})` : call;
      } else {
        this.#isOpen = isOpen;
        return value;
      }
    }
  }

  #primary(): string {
    const next = this.#next();
    if (next === "(") {
      const inner = this.#expression();
      this.#expect(")");
      return `(${inner})`;
    }
    if (next === "{") return `[undefined, ${this.#list("}")}]`;
    if (next === "nil") return "undefined";
    if (next === "true" || next === "false" || /^["'\d]/.test(next)) return next;
    if (this.#isKnown(next)) return `$${next}`;
    if (globals.has(next)) return `globals.${next}`;
    throw new Error(`Lua: unexpected ${next}`);
  }

  #list(end: string): string {
    const elements: string[] = [];
    while (!this.#accept(end)) {
      elements.push(this.#expression());
      const isLast = !this.#accept(",");
      if (isLast && this.#isOpen) throw new Error("Lua: a call of several values ends a list");
    }
    return elements.join(", ");
  }

  #isKnown(name: string): boolean {
    return this.#blocks.some((names) => names.has(name));
  }

  #isFunction(name: string): boolean {
    return this.#blocks.some((names) => names.get(name) === true);
  }

  /** Whatever it is part of is one value. */
  #closed(text: string): string {
    this.#isOpen = false;
    return text;
  }
}
