/** How a call into foreign code may end, other than as it should. */
export type Way = "throws" | "rejects" | "never settles" | "acts twice" | "settles twice";

/** What may be thrown. */
export const values = {
  "an error": () => new Error("the foreign code has failed"),
  "an error with a status": () => Object.assign(new Error("the teapot"), { status: 418 }),
  "an object without a text": () => Object.create(null) as object,
  undefined: () => undefined,
  null: () => null,
  "the word route": () => "route",
  zero: () => 0,
} satisfies Record<string, () => unknown>;
export type ValueName = keyof typeof values;

// biome-ignore lint/suspicious/noExplicitAny: any function of a framework or an application.
type AnyFunction = (this: any, ...args: any[]) => any;

/** The one call of a program that goes wrong. */
export class Fault {
  readonly way: Way;
  readonly value: unknown;
  /** What every time of its program is multiplied by. */
  readonly pace: number;
  isArmed = false;
  hasStruck = false;
  readonly undo: (() => void)[] = [];
  /** Calls that go well before. */
  #after: number;

  constructor(way: Way, value: ValueName, after: number, pace: number) {
    this.pace = pace;
    this.way = way;
    this.value = values[value]();
    this.#after = after;
  }

  undoAll(): void {
    for (const undo of this.undo.splice(0)) undo();
  }

  /** Whether the present call is the one. */
  strikes(): boolean {
    if (!this.isArmed || this.hasStruck || this.#after-- > 0) return false;
    this.hasStruck = true;
    return true;
  }

  /** The foreign function, which goes wrong once. */
  in<Works extends AnyFunction>(works: Works): Works {
    const fault = this;
    return function foreign(this: unknown, ...args) {
      const good = () => Reflect.apply(works, this, args);
      return fault.strikes() ? fault.#wrong(good) : good();
    } as Works;
  }

  /** Replaces methods of an object, so that a call of any of them may be the one. */
  inMethods(object: object, names: readonly string[]): void {
    for (const name of names) {
      const value = this.in(Reflect.get(object, name) as AnyFunction);
      Object.defineProperty(object, name, { value, configurable: true, writable: true });
    }
  }

  /** The same for members that are read or set. */
  inMembers(object: object, names: readonly string[]): void {
    const home: object = Object.getPrototypeOf(object);
    for (const name of names) {
      let own: unknown;
      Object.defineProperty(object, name, {
        configurable: true,
        get: this.in(() => (name in home ? Reflect.get(home, name, object) : own)),
        set: this.in((value: unknown) => {
          if (name in home) Reflect.set(home, name, value, object);
          else own = value;
        }),
      });
    }
  }

  #wrong(good: () => unknown): unknown {
    switch (this.way) {
      case "throws":
        throw this.value;
      case "rejects":
        return Promise.reject(this.value);
      case "never settles":
        return new Promise(() => {});
      case "acts twice":
        good();
        return good();
      case "settles twice": {
        const made = good();
        // biome-ignore lint/suspicious/noThenProperty: a promise of another library.
        return { then: (...settle: ((value: unknown) => void)[]) => this.#settle(settle, made) };
      }
    }
  }

  #settle([resolve, reject]: ((value: unknown) => void)[], made: unknown): void {
    resolve?.(made);
    resolve?.(made);
    reject?.(this.value);
  }
}
