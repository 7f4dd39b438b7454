/** What has to hold on every schedule. The texts are what a report shows. */
export const invariants = {
  exclusion: "one valid lease a user at a time",
  backed: "a valid lease is backed by a key that lives longer",
  told: "a lost lease is signalled before its key can be somebody else's",
  kept: "a lease is kept for as long as Redis can be reached",
  closed: "a closed lock holds nothing",
  inTime: "acquired only within the budget, and with time left",
  justified: "contended only when somebody else was there",
  atHand: "an answer that lies ready is read before anything is given up",
  resolved: "a single lost answer does not make a lock unavailable",
  orphan: "no key outlives its attempt by more than 50 ms and a round trip",
  stale: "no copy takes effect long after it was written",
  lifetime: "only an extend lengthens a life, and never beyond the TTL",
  ownKey: "only the owner's key is deleted",
  truthful: "a release says what became of the key",
  settled: "every call settles within its bound",
  silence: "a silent or absent connection gets nothing more",
  rejection: "no rejection goes unhandled",
  leftover: "nothing is left behind",
} as const;

export type Invariant = keyof typeof invariants;

export interface Violation {
  readonly invariant: Invariant;
  readonly atMs: number;
  readonly text: string;
}

/** Keeps the first violation: what follows from it proves nothing more. */
export class Verdict {
  violation: Violation | undefined;
  readonly #now: () => number;
  readonly #note: (text: string) => void;

  constructor(now: () => number, note: (text: string) => void) {
    this.#now = now;
    this.#note = note;
  }

  broken(invariant: Invariant, text: string): void {
    if (this.violation !== undefined) return;
    this.violation = { invariant, atMs: this.#now(), text };
    this.#note(`VIOLATION: ${invariants[invariant]}: ${text}`);
  }
}
