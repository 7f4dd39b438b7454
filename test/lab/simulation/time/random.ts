import { mulberry32 } from "./mulberry32.ts";

/** The one source of randomness of a run: the same seed gives the same run. Seed 0 gives no noise at all. */
export class Random {
  readonly #next: () => number;
  readonly #silent: boolean;

  constructor(seed: number) {
    this.#next = mulberry32(seed);
    this.#silent = seed === 0;
  }

  /** From 0 to 1, without 1. */
  next(): number {
    return this.#silent ? 0.5 : this.#next();
  }

  /** A deviation from the expected, between the two; none at all without a seed. */
  noise(from: number, to: number): number {
    return this.#silent ? 0 : from + this.next() * (to - from);
  }
}
