import { createHistogram } from "node:perf_hooks";

/** Durations in milliseconds, to a thousandth of their size. */
export class Samples {
  readonly #nanos = createHistogram();

  add(ms: number): void {
    this.#nanos.record(Math.max(1, Math.round(ms * 1e6)));
  }

  quantiles(): { p50Ms: number; p99Ms: number } {
    return { p50Ms: this.#nanos.percentile(50) / 1e6, p99Ms: this.#nanos.percentile(99) / 1e6 };
  }
}
