/** A time in which somebody believed to hold a lock. */
export interface Holding {
  /** Who: a caller, or the service whose handler ran. */
  readonly holder: string;
  readonly user: string;
  /** The submission, where it has a name. */
  readonly order?: string | undefined;
  readonly ownerId: string;
  readonly fencingToken?: number | undefined;
  /** When the request came that was granted the lock. */
  readonly askedAt?: number;
  readonly from: number;
  /** When the release was called, or the holder was told that the lock is lost, or died. */
  until: number;
  lost: boolean;
  /** Why, as the holder was told. */
  reason?: string;
  /** The work had its effect, whatever became of the lease. */
  isDone?: boolean;
  /** Until when the lease is valid, as far as the holder has said. */
  believedUntil?: number;
}

/** Who believed to hold which lock, and when. */
export class Ledger {
  #holdings: Holding[] = [];

  get holdings(): readonly Holding[] {
    return this.#holdings;
  }

  begin(holding: Omit<Holding, "until" | "lost">): Holding {
    const begun = { ...holding, until: Number.POSITIVE_INFINITY, lost: false };
    this.#holdings.push(begun);
    return begun;
  }

  /** Only the first end counts. */
  end(holding: Holding, at: number, lost = false): void {
    holding.until = Math.min(holding.until, at);
    holding.lost ||= lost;
  }

  of(ownerId: string): Holding | undefined {
    return this.#holdings.findLast((holding) => holding.ownerId === ownerId);
  }

  /** Forgets what is over. */
  forget(): void {
    this.#holdings = this.#holdings.filter(({ until }) => until === Number.POSITIVE_INFINITY);
  }
}

/** Every two holdings of one user that were there at once, the earlier one first. */
export function overlapping(holdings: readonly Holding[]): [Holding, Holding][] {
  const pairs: [Holding, Holding][] = [];
  const current = new Map<string, Holding[]>();
  for (const holding of [...holdings].sort((a, b) => a.from - b.from)) {
    const earlier = (current.get(holding.user) ?? []).filter((one) => one.until > holding.from);
    for (const one of earlier) pairs.push([one, holding]);
    current.set(holding.user, [...earlier, holding]);
  }
  return pairs;
}
