/** Counts what is under way, so that somebody can wait until nothing is. */
export class WaitGroup {
  #count = 0;
  #waiting: (() => void)[] = [];

  get count(): number {
    return this.#count;
  }

  add(): void {
    this.#count++;
  }

  done(): void {
    this.#count--;
    if (this.#count > 0) return;
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const resolve of waiting) resolve();
  }

  /** Resolves when nothing is under way, at once if nothing is now. */
  wait(): Promise<void> {
    return this.#count === 0
      ? Promise.resolve()
      : new Promise((resolve) => this.#waiting.push(resolve));
  }
}
