interface Incident {
  readonly from: number;
  to: number | undefined;
  /** What no second connection helps against. */
  readonly isEverywhere: boolean;
}

/**
 * Since when, and when before, Redis could be reached from one process without any trouble, and the
 * process itself was awake. The bounds that hold "while Redis is reachable" are measured by it.
 */
export class Health {
  readonly #now: () => number;
  readonly #healthy: { from: number; to: number | undefined }[] = [];
  #troubles = 0;
  readonly #incidents: Incident[] = [];

  constructor(now: () => number) {
    this.#now = now;
    this.#healthy.push({ from: now(), to: undefined });
  }

  /** @returns ends the trouble; may be called more than once. */
  troubled(isEverywhere = false): () => void {
    const now = this.#now();
    if (this.#troubles++ === 0) (this.#healthy.at(-1) as { to: number | undefined }).to = now;
    const over = this.hampered(isEverywhere);
    let isOver = false;
    return () => {
      if (isOver) return;
      isOver = true;
      over();
      if (--this.#troubles === 0) this.#healthy.push({ from: this.#now(), to: undefined });
    };
  }

  /**
   * Redis is reached, and does not do everything: no excuse for what it does.
   *
   * @returns ends it; may be called more than once.
   */
  hampered(isEverywhere = true): () => void {
    const incident: Incident = { from: this.#now(), to: undefined, isEverywhere };
    this.#incidents.push(incident);
    return () => {
      incident.to ??= this.#now();
    };
  }

  /** The longest time without any trouble between two times. */
  longestHealthy(from: number, to: number): number {
    let longest = 0;
    for (const stretch of this.#healthy) {
      const length = Math.min(stretch.to ?? to, to) - Math.max(stretch.from, from);
      longest = Math.max(longest, length);
    }
    return longest;
  }

  /** Whether no more than `most` connections were ever in trouble between two times, each once. */
  wasResolvable(from: number, to: number, most = 1): boolean {
    const incidents = this.#incidents.filter(
      (incident) => incident.from <= to && (incident.to ?? to) >= from,
    );
    return incidents.length <= most && !incidents.some(({ isEverywhere }) => isEverywhere);
  }
}
