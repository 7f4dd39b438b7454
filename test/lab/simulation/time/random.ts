/** A source of randomness with a seed: the same seed, the same numbers. (mulberry32) */
export class Random {
  #state: number;

  constructor(seed: number) {
    this.#state = seed | 0;
  }

  /** From 0 to 1, without 1. */
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), 1 | this.#state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 0x1_0000_0000;
  }

  between(low: number, high: number): number {
    return low + (high - low) * this.next();
  }

  pick<Item>(from: readonly Item[]): Item {
    return from[Math.floor(this.next() * from.length)] as Item;
  }
}

/** The one source of randomness of a run: the same seed gives the same run. Seed 0 gives no noise at all. */
export class Noise extends Random {
  readonly #isSilent: boolean;

  constructor(seed: number) {
    super(seed);
    this.#isSilent = seed === 0;
  }

  override next(): number {
    return this.#isSilent ? 0.5 : super.next();
  }

  /** A deviation from the expected, between the two; none at all without a seed. */
  deviation(from: number, to: number): number {
    return this.#isSilent ? 0 : this.between(from, to);
  }
}
