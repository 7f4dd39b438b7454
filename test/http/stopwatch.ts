const everyMs = 5;

/**
 * Takes the time that this process could have worked. A busy machine gives the processor to others
 * meanwhile: that shows as a gap between two ticks of a timer, and is no fault of what is timed.
 */
export class Stopwatch {
  readonly #startedAt = performance.now();
  #tickedAt = this.#startedAt;
  #stolenMs = 0;
  readonly #timer = setInterval(() => this.#tick(), everyMs);

  /** @returns milliseconds. */
  stop(): number {
    this.#tick();
    clearInterval(this.#timer);
    return this.#tickedAt - this.#startedAt - this.#stolenMs;
  }

  #tick(): void {
    const now = performance.now();
    this.#stolenMs += Math.max(0, now - this.#tickedAt - 2 * everyMs);
    this.#tickedAt = now;
  }
}
