/** The names that are known at one place of a Lua program. */
export class LuaScope {
  /** The names of each block, and whether each is a function's. */
  readonly #blocks: Map<string, boolean>[] = [];

  /** What `translate` declares is known in there only. */
  block<Result>(names: readonly string[], translate: () => Result): Result {
    this.#blocks.push(new Map(names.map((name) => [name, false])));
    const result = translate();
    this.#blocks.pop();
    return result;
  }

  /** As JavaScript knows it: no name of Lua's means anything else there. */
  declare(name: string, isFunction = false): string {
    this.#blocks.at(-1)?.set(name, isFunction);
    return `$${name}`;
  }

  isKnown(name: string): boolean {
    return this.#blocks.some((names) => names.has(name));
  }

  isFunction(name: string): boolean {
    return this.#blocks.some((names) => names.get(name) === true);
  }
}
