import type { LuaScope } from "./lua-scope.ts";
import type { LuaTokens } from "./lua-tokens.ts";
import { givesSeveral } from "./lua-values.ts";

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

/** Translates the expressions of Lua, one level of precedence a method. */
export class LuaExpressions {
  readonly #tokens: LuaTokens;
  readonly #scope: LuaScope;
  #isOpen = false;

  constructor(tokens: LuaTokens, scope: LuaScope) {
    this.#tokens = tokens;
    this.#scope = scope;
  }

  /** The last expression was nothing but a call of something that may give several values. */
  get isOpen(): boolean {
    return this.#isOpen;
  }

  /**
   * Translates the expression that is read next.
   *
   * @param isWhole whether a call leaves all its values here, and not the first alone.
   */
  next(isWhole = false): string {
    this.#isOpen = false;
    let left = this.#conjunction();
    while (this.#tokens.accept("or")) {
      left = this.#closed(`(($) => lua.truthy($) ? $ : ${this.#conjunction()})(${left})`);
    }
    return this.#isOpen && isWhole ? left.slice(firstOf.length, -1) : left;
  }

  #conjunction(): string {
    let left = this.#comparison();
    while (this.#tokens.accept("and")) {
      left = this.#closed(`(($) => lua.truthy($) ? ${this.#comparison()} : $)(${left})`);
    }
    return left;
  }

  #comparison(): string {
    const left = this.#concatenation();
    const compare = comparisons[this.#tokens.peek() ?? ""];
    if (compare === undefined) return left;
    this.#tokens.next();
    return this.#closed(compare(left, this.#concatenation()));
  }

  /** Binds to the right. */
  #concatenation(): string {
    const left = this.#sum();
    if (!this.#tokens.accept("..")) return left;
    return this.#closed(`lua.concatenate(${left}, ${this.#concatenation()})`);
  }

  #sum(): string {
    let left = this.#product();
    for (;;) {
      if (this.#tokens.accept("+")) left = this.#closed(`lua.add(${left}, ${this.#product()})`);
      else if (this.#tokens.accept("-"))
        left = this.#closed(`lua.subtract(${left}, ${this.#product()})`);
      else return left;
    }
  }

  #product(): string {
    let left = this.#unary();
    for (;;) {
      if (this.#tokens.accept("*")) left = this.#closed(`lua.multiply(${left}, ${this.#unary()})`);
      else if (this.#tokens.accept("/"))
        left = this.#closed(`lua.divide(${left}, ${this.#unary()})`);
      else return left;
    }
  }

  #unary(): string {
    if (this.#tokens.accept("-")) return this.#closed(`lua.negate(${this.#unary()})`);
    if (this.#tokens.accept("not")) return this.#closed(`(!lua.truthy(${this.#unary()}))`);
    if (this.#tokens.accept("#")) return this.#closed(`lua.length(${this.#unary()})`);
    return this.postfix();
  }

  /** A name or a value with what follows it: members, indexes and calls. */
  postfix(): string {
    let name = this.#tokens.peek() ?? "";
    let value = this.#primary();
    let isOpen = false;
    for (;;) {
      if (this.#tokens.accept(".")) {
        const member = this.#tokens.next();
        name += `.${member}`;
        value = `lua.member(${value}, "${member}")`;
        isOpen = false;
      } else if (this.#tokens.accept("[")) {
        value = `${value}[${this.next()}]`;
        this.#tokens.expect("]");
        isOpen = false;
      } else if (this.#tokens.accept("(")) {
        isOpen = this.#scope.isFunction(name) || givesSeveral.has(name);
        const call = `${value}(${this.#list(")")})`;
        value = isOpen ? `${firstOf}${call})` : call;
      } else {
        this.#isOpen = isOpen;
        return value;
      }
    }
  }

  #primary(): string {
    const next = this.#tokens.next();
    if (next === "(") {
      const inner = this.next();
      this.#tokens.expect(")");
      return `(${inner})`;
    }
    if (next === "{") return `[undefined, ${this.#list("}")}]`;
    if (next === "nil") return "undefined";
    if (next === "true" || next === "false" || /^["'\d]/.test(next)) return next;
    if (this.#scope.isKnown(next)) return `$${next}`;
    if (globals.has(next)) return `globals.${next}`;
    throw new Error(`Lua: unexpected ${next}`);
  }

  #list(end: string): string {
    const elements: string[] = [];
    while (!this.#tokens.accept(end)) {
      elements.push(this.next());
      const isLast = !this.#tokens.accept(",");
      if (isLast && this.#isOpen) throw new Error("Lua: a call of several values ends a list");
    }
    return elements.join(", ");
  }

  /** Whatever it is part of is one value. */
  #closed(text: string): string {
    this.#isOpen = false;
    return text;
  }
}
