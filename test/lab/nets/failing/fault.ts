/** How a call into foreign code may end, other than as it should. */
const ways = ["throws", "rejects", "never settles", "acts twice", "settles twice"] as const;
export type Way = (typeof ways)[number];

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
  isArmed = false;
  /** Calls that go well before. */
  #after: number;
  hasStruck = false;
  readonly undo: (() => void)[] = [];

  constructor(way: Way, value: ValueName, after: number) {
    this.way = way;
    this.value = values[value]();
    this.#after = after;
  }

  undoAll(): void {
    for (const undo of this.undo.splice(0)) undo();
  }

  /** The foreign function, which goes wrong once. */
  in<Works extends AnyFunction>(works: Works): Works {
    const fault = this;
    return function foreign(this: unknown, ...args) {
      const good = () => Reflect.apply(works, this, args);
      if (!fault.isArmed || fault.hasStruck || fault.#after-- > 0) return good();
      fault.hasStruck = true;
      return fault.strike(good);
    } as Works;
  }

  /** Goes wrong, where `good` does what should be done. */
  strike(good: () => unknown): unknown {
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
        const reject = this.value;
        const settling = (resolve: (value: unknown) => void, no: (error: unknown) => void) => {
          resolve(made);
          resolve(made);
          no(reject);
        };
        // biome-ignore lint/suspicious/noThenProperty: a promise of another library.
        return { then: settling };
      }
    }
  }

  /** Replaces methods, so that a call of any of them may be the one. */
  inMethods(object: object, names: readonly string[]): void {
    for (const name of names) {
      const method: unknown = Reflect.get(object, name);
      if (typeof method === "function") {
        Object.defineProperty(object, name, {
          value: this.in(method as AnyFunction),
          configurable: true,
          writable: true,
        });
      }
    }
  }

  /** The same for members that are read or set. */
  inMembers(object: object, names: readonly string[]): void {
    for (const name of names) {
      let own: unknown;
      let isOwn = false;
      const read = this.in(() => (isOwn ? own : undefined));
      let from: object | null = object;
      while (from !== null && !Object.hasOwn(from, name)) from = Object.getPrototypeOf(from);
      const original = from === null ? undefined : Object.getOwnPropertyDescriptor(from, name);
      const get = this.in(() => original?.get?.call(object) ?? original?.value);
      const set = this.in((value: unknown) => {
        if (original?.set) original.set.call(object, value);
        else [own, isOwn] = [value, true];
      });
      Object.defineProperty(object, name, {
        configurable: true,
        get: () => (isOwn ? read() : get()),
        set,
      });
    }
  }
}
