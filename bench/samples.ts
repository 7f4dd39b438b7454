import { quantile } from "./statistics.ts";

/** Durations in milliseconds, without an object for each. */
export class Samples {
  #values = new Float64Array(4_096);
  #count = 0;

  add(ms: number): void {
    if (this.#count === this.#values.length) {
      const larger = new Float64Array(2 * this.#count);
      larger.set(this.#values);
      this.#values = larger;
    }
    this.#values[this.#count++] = ms;
  }

  quantiles(): { p50Ms: number; p99Ms: number } {
    const sorted = this.#values.subarray(0, this.#count).sort();
    return { p50Ms: quantile(sorted, 0.5), p99Ms: quantile(sorted, 0.99) };
  }
}
