import { LuaExpressions } from "./lua-expressions.ts";
import { LuaScope } from "./lua-scope.ts";
import { LuaTokens } from "./lua-tokens.ts";
import { type LuaValue, operators } from "./lua-values.ts";

/**
 * A translator for as much Lua as the scripts use: `local`, functions that give one value or several,
 * assignment, `if`, both kinds of `for`, `return`, tables, calls and the usual operators. So the
 * simulated server runs the very text that is sent to Redis. Whatever is not known here is an error,
 * and so is what would behave differently.
 */
export type LuaProgram = (globals: Record<string, unknown>) => LuaValue;

export function compileLua(source: string): LuaProgram {
  return new Translator(new LuaTokens(source)).program();
}

/** Translates the statements of Lua. */
class Translator {
  readonly #tokens: LuaTokens;
  readonly #scope = new LuaScope();
  readonly #expressions: LuaExpressions;

  constructor(tokens: LuaTokens) {
    this.#tokens = tokens;
    this.#expressions = new LuaExpressions(tokens, this.#scope);
  }

  program(): LuaProgram {
    const body = this.#block();
    if (this.#tokens.peek() !== undefined)
      throw new Error(`Lua: unexpected ${this.#tokens.peek()}`);
    const make = new Function("lua", "globals", body) as (lua: object, globals: object) => LuaValue;
    return (globals) => make(operators, globals);
  }

  #block(names: readonly string[] = []): string {
    return this.#scope.block(names, () => {
      let body = "";
      for (;;) {
        const next = this.#tokens.peek();
        if (next === undefined || ["end", "else", "elseif"].includes(next)) return body;
        body += this.#statement();
      }
    });
  }

  #statement(): string {
    if (this.#tokens.accept("local")) return this.#local();
    if (this.#tokens.accept("if")) return this.#if();
    if (this.#tokens.accept("for")) return this.#for();
    if (this.#tokens.accept("return")) return this.#return();
    const targets = [this.#expressions.postfix()];
    while (this.#tokens.accept(",")) targets.push(this.#expressions.postfix());
    if (!this.#tokens.accept("=")) {
      if (targets.length > 1) throw new Error(`Lua: expected =, got ${this.#tokens.peek()}`);
      return `${targets[0]};\n`;
    }
    for (const target of targets) {
      if (!/^\$\w+(\[.*\])?$/.test(target)) throw new Error(`Lua: cannot assign to ${target}`);
    }
    return `${this.#assignment(targets)};\n`;
  }

  #assignment(targets: readonly string[]): string {
    if (targets.length === 1) return `${targets[0]} = ${this.#expressions.next()}`;
    const call = this.#expressions.next(true);
    if (!this.#expressions.isOpen) throw new Error("Lua: only a call gives several values here");
    return `[${targets.join(", ")}] = lua.adjusted(${call})`;
  }

  #return(): string {
    const values = [this.#expressions.next(true)];
    while (this.#tokens.accept(",")) {
      if (this.#expressions.isOpen) throw new Error("Lua: a call among the values of a return");
      values.push(this.#expressions.next());
    }
    if (values.length === 1) return `return ${values[0]};\n`;
    return `return lua.values(${values.join(", ")});\n`;
  }

  #local(): string {
    if (this.#tokens.accept("function")) return this.#function();
    const names = [this.#tokens.next()];
    while (this.#tokens.accept(",")) names.push(this.#tokens.next());
    const targets = names.map((name) => `$${name}`);
    const text = this.#tokens.accept("=")
      ? `let ${this.#assignment(targets)};\n`
      : `let ${targets.join(", ")};\n`;
    // Only now: a name is not known within its own value.
    for (const name of names) this.#scope.declare(name);
    return text;
  }

  #function(): string {
    const name = this.#scope.declare(this.#tokens.next(), true);
    this.#tokens.expect("(");
    const parameters: string[] = [];
    while (!this.#tokens.accept(")")) {
      parameters.push(this.#tokens.next());
      this.#tokens.accept(",");
    }
    const body = this.#block(parameters);
    this.#tokens.expect("end");
    return `const ${name} = (${parameters.map((each) => `$${each}`).join(", ")}) => {\n${body}};\n`;
  }

  #if(): string {
    let text = `if (lua.truthy(${this.#expressions.next()})) {\n`;
    this.#tokens.expect("then");
    text += this.#block();
    for (;;) {
      if (this.#tokens.accept("elseif")) {
        text += `} else if (lua.truthy(${this.#expressions.next()})) {\n`;
        this.#tokens.expect("then");
        text += this.#block();
      } else if (this.#tokens.accept("else")) {
        text += `} else {\n${this.#block()}`;
      } else {
        this.#tokens.expect("end");
        return `${text}}\n`;
      }
    }
  }

  #for(): string {
    const index = this.#tokens.next();
    if (this.#tokens.accept("=")) {
      const from = this.#expressions.next();
      this.#tokens.expect(",");
      const to = this.#expressions.next();
      const body = this.#loopBody([index]);
      return `for (let i = ${from}, to = ${to}; i <= to; i++) {\nconst $${index} = i;\n${body}}\n`;
    }
    this.#tokens.expect(",");
    const value = this.#tokens.next();
    for (const word of ["in", "ipairs", "("]) this.#tokens.expect(word);
    const table = this.#expressions.next();
    this.#tokens.expect(")");
    const body = this.#loopBody([index, value]);
    return `for (let i = 1, all = ${table}; all[i] !== undefined; i++) {\nlet $${index} = i, $${value} = all[i];\n${body}}\n`;
  }

  #loopBody(names: readonly string[]): string {
    this.#tokens.expect("do");
    const body = this.#block(names);
    this.#tokens.expect("end");
    return body;
  }
}
