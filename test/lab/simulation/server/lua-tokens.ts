const token =
  /\s*(?:--[^\n]*\n?|("[^"]*"|'[^']*')|(\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|([A-Za-z_]\w*)|(\.\.|==|~=|<=|>=|[-+*/<>=(){}[\],.#]))/y;

/** The words and signs of a Lua program, read one after another. */
export class LuaTokens {
  readonly #tokens: readonly string[];
  #at = 0;

  constructor(source: string) {
    this.#tokens = tokensOf(source);
  }

  /** The next one, if there is one, which stays the next. */
  peek(): string | undefined {
    return this.#tokens[this.#at];
  }

  next(): string {
    const next = this.#tokens[this.#at++];
    if (next === undefined) throw new Error("Lua: the script ends too early");
    return next;
  }

  accept(word: string): boolean {
    if (this.peek() !== word) return false;
    this.#at++;
    return true;
  }

  expect(word: string): void {
    const next = this.next();
    if (next !== word) throw new Error(`Lua: expected ${word}, got ${next}`);
  }
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
