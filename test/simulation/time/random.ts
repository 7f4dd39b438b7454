/** The one source of randomness of a run: the same seed gives the same run. Seed 0 gives no noise at all. */
export class Random {
  #state: number;
  readonly #silent: boolean;

  constructor(seed: number) {
    this.#state = seed | 0;
    this.#silent = seed === 0;
  }

  /** From 0 to 1, without 1 (mulberry32). */
  next(): number {
    if (this.#silent) return 0.5;
    this.#state = (this.#state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), 1 | this.#state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 0x1_0000_0000;
  }

  /** A deviation from the expected, between the two; none at all without a seed. */
  noise(from: number, to: number): number {
    return this.#silent ? 0 : from + this.next() * (to - from);
  }
}
