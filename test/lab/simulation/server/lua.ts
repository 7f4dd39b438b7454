/**
 * A translator for as much Lua as the scripts use: `local`, functions, assignment, `if`,
 * `for … in ipairs`, `return`, tables, calls and the usual operators. So the simulated server runs the very text that
 * is sent to Redis, and a change of a script is a change here.
 *
 * Tables are arrays without the first element, so that an index is Lua's own.
 */
export type LuaValue = string | number | boolean | undefined | LuaTable | LuaObject;
export type LuaTable = LuaValue[];
interface LuaObject {
  readonly [member: string]: LuaValue | ((...args: never[]) => LuaValue);
}

export type LuaProgram = (globals: Record<string, unknown>) => LuaValue;

const token =
  /\s*(?:--[^\n]*\n?|("[^"]*"|'[^']*')|(\d+(?:\.\d+)?)|([A-Za-z_]\w*)|(==|~=|<=|>=|[-+*/<>=(){}[\],.]))/y;

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

const runtime = {
  truthy: (value: unknown) => value !== undefined && value !== false && value !== null,
  number: (value: unknown) => Number(value),
};

const comparisons: Record<string, string> = {
  "==": "===",
  "~=": "!==",
  "<": "<",
  ">": ">",
  "<=": "<=",
  ">=": ">=",
};

class Translator {
  readonly #tokens: readonly string[];
  #at = 0;
  #locals: Set<string>[] = [];

  constructor(tokens: readonly string[]) {
    this.#tokens = tokens;
  }

  program(): LuaProgram {
    const body = this.#block();
    if (this.#peek() !== undefined) throw new Error(`Lua: unexpected ${this.#peek()}`);
    const make = new Function("runtime", "globals", body) as (
      runtime: object,
      globals: object,
    ) => LuaValue;
    return (globals) => make(runtime, globals);
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
    this.#locals.push(new Set(names));
    let body = "";
    for (;;) {
      const next = this.#peek();
      if (next === undefined || ["end", "else", "elseif"].includes(next)) break;
      body += this.#statement();
    }
    this.#locals.pop();
    return body;
  }

  #statement(): string {
    if (this.#accept("local")) return this.#local();
    if (this.#accept("if")) return this.#if();
    if (this.#accept("for")) return this.#for();
    if (this.#accept("return")) return `return ${this.#expression()};\n`;
    const target = this.#postfix();
    if (this.#accept("=")) return `${target} = ${this.#expression()};\n`;
    return `${target};\n`;
  }

  #local(): string {
    if (this.#accept("function")) return this.#function();
    const name = this.#next();
    const value = this.#accept("=") ? this.#expression() : "undefined";
    this.#locals.at(-1)?.add(name);
    return `let ${name} = ${value};\n`;
  }

  #function(): string {
    const name = this.#next();
    this.#locals.at(-1)?.add(name);
    this.#expect("(");
    const parameters: string[] = [];
    while (!this.#accept(")")) {
      parameters.push(this.#next());
      this.#accept(",");
    }
    const body = this.#block(parameters);
    this.#expect("end");
    return `const ${name} = (${parameters.join(", ")}) => {\n${body}};\n`;
  }

  #if(): string {
    let text = `if (runtime.truthy(${this.#expression()})) {\n`;
    this.#expect("then");
    text += this.#block();
    for (;;) {
      if (this.#accept("elseif")) {
        text += `} else if (runtime.truthy(${this.#expression()})) {\n`;
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
    this.#expect(",");
    const value = this.#next();
    for (const word of ["in", "ipairs", "("]) this.#expect(word);
    const table = this.#expression();
    this.#expect(")");
    this.#expect("do");
    const body = this.#block([index, value]);
    this.#expect("end");
    return `for (let ${index} = 1; ${table}[${index}] !== undefined; ${index}++) {\nconst ${value} = ${table}[${index}];\n${body}}\n`;
  }

  #expression(): string {
    let left = this.#conjunction();
    while (this.#accept("or")) {
      left = `(($) => runtime.truthy($) ? $ : ${this.#conjunction()})(${left})`;
    }
    return left;
  }

  #conjunction(): string {
    let left = this.#comparison();
    while (this.#accept("and")) {
      left = `(($) => runtime.truthy($) ? ${this.#comparison()} : $)(${left})`;
    }
    return left;
  }

  #comparison(): string {
    const left = this.#sum();
    const sign = comparisons[this.#peek() ?? ""];
    if (sign === undefined) return left;
    this.#at++;
    return `(${left} ${sign} ${this.#sum()})`;
  }

  #sum(): string {
    let left = this.#product();
    for (;;) {
      if (this.#accept("+"))
        left = `(runtime.number(${left}) + runtime.number(${this.#product()}))`;
      else if (this.#accept("-")) left = `(${left} - ${this.#product()})`;
      else return left;
    }
  }

  #product(): string {
    let left = this.#unary();
    for (;;) {
      if (this.#accept("*")) left = `(${left} * ${this.#unary()})`;
      else if (this.#accept("/")) left = `(${left} / ${this.#unary()})`;
      else return left;
    }
  }

  #unary(): string {
    if (this.#accept("-")) return `(-${this.#unary()})`;
    if (this.#accept("not")) return `(!runtime.truthy(${this.#unary()}))`;
    return this.#postfix();
  }

  #postfix(): string {
    let value = this.#primary();
    for (;;) {
      if (this.#accept(".")) value += `.${this.#next()}`;
      else if (this.#accept("[")) {
        value += `[${this.#expression()}]`;
        this.#expect("]");
      } else if (this.#accept("(")) value += `(${this.#list(")")})`;
      else return value;
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
    if (!/^[A-Za-z_]/.test(next)) throw new Error(`Lua: unexpected ${next}`);
    return this.#locals.some((names) => names.has(next)) ? next : `globals.${next}`;
  }

  #list(end: string): string {
    const elements: string[] = [];
    while (!this.#accept(end)) {
      elements.push(this.#expression());
      this.#accept(",");
    }
    return elements.join(", ");
  }
}
