/** A time in which somebody believed to hold the lock. */
export interface Holding {
  readonly who: string;
  readonly ownerId: string;
  readonly from: number;
  /** Until the release was called, or the holder was told that the lock is lost. */
  until: number;
}

/** Who believed to hold the lock, and when. */
export class Ledger {
  readonly #holdings: Holding[] = [];

  begin(who: string, ownerId: string): Holding {
    const holding = { who, ownerId, from: performance.now(), until: Number.POSITIVE_INFINITY };
    this.#holdings.push(holding);
    return holding;
  }

  end(holding: Holding): void {
    holding.until = Math.min(holding.until, performance.now());
  }

  of(ownerId: string): Holding | undefined {
    return this.#holdings.find((holding) => holding.ownerId === ownerId);
  }

  /** How often `who` got the lock after this time. */
  countSince(time: number, who: (name: string) => boolean): number {
    return this.#holdings.filter((holding) => who(holding.who) && holding.from >= time).length;
  }

  /** How often two callers held at once. */
  get overlaps(): number {
    let overlaps = 0;
    this.#holdings.forEach((one, at) => {
      for (const other of this.#holdings.slice(at + 1)) {
        const apart = one.until <= other.from || other.until <= one.from;
        if (!apart && one.who !== other.who) overlaps++;
      }
    });
    return overlaps;
  }
}
