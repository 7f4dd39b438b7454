import { Random } from "./random.ts";

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
