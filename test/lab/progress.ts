/** A program of a laboratory tells its parent how many of its tries are over. */
export interface Played {
  readonly played: number;
}

// The simulation replaces the clocks of its process, and this one stays.
const { bigint: ns } = process.hrtime;

/** @returns a function to call behind each try: the parent hears the count twice a second at most. */
export function counting(): () => void {
  let [played, sentAt] = [0, 0n];
  return () => {
    played++;
    const at = ns();
    if (at - sentAt < 500_000_000n) return;
    sentAt = at;
    process.send?.({ played } satisfies Played);
  };
}

/** Prints how far a laboratory is, every ten seconds until it is stopped. */
export class Progress {
  readonly #counts = new Map<number, number>();
  readonly #from = performance.now();
  readonly #timer: NodeJS.Timeout;

  /** @param unit of the tries, such as "programs" */
  constructor(of: number, unit: string) {
    this.#timer = setInterval(() => {
      const sum = [...this.#counts.values()].reduce((all, each) => all + each, 0);
      const seconds = Math.round((performance.now() - this.#from) / 1_000);
      console.log(
        `${sum.toLocaleString("en")} of ${of.toLocaleString("en")} ${unit}, ${seconds} s`,
      );
    }, 10_000);
  }

  /** @param index of the process whose programs these are. */
  at(index: number): (played: number) => void {
    return (played) => this.#counts.set(index, played);
  }

  stop(): void {
    clearInterval(this.#timer);
  }
}
