import type { World } from "../world.ts";

/** What has to hold on every schedule. The texts are what a report shows. */
export const invariants = {
  exclusion: "one valid lease a user at a time",
  backed: "a valid lease is backed by a key that lives longer",
  told: "a lost lease is signalled before its key can be somebody else's",
  looked: "a holder that looks is told when its key may be another's",
  kept: "a lease is kept for as long as Redis can be reached",
  closed: "a closed lock holds nothing",
  inTime: "acquired only within the budget, and with time left",
  justified: "contended, completed or mismatched only when somebody else was there",
  atHand: "an answer that lies ready is read before anything is given up",
  resolved: "a single lost answer does not make a lock unavailable",
  orphan: "no key outlives its attempt by more than 50 ms and a round trip",
  stale: "no copy takes effect long after it was written",
  grammar: "a key holds what a lock writes",
  lifetime: "only an extend lengthens a life, and never beyond the TTL",
  stranded: "a user who asks finds no key that lives longer than its own time",
  ownKey: "only the owner's key is deleted",
  truthful: "a release, and a complete, says what became of the key and the record",
  settled: "every call settles within its bound",
  silence: "a silent or absent connection gets nothing more",
  rejection: "no rejection goes unhandled",
  leftover: "nothing is left behind",
  once: "no submission is acquired while its record stands, or its process has still to write it",
  gap: "from the complete on there is a lock or a record at every instant",
  record: "a record is never overwritten, lengthened, deleted or written again",
  waited:
    "a caller that waits is told the answer of a run that has ended since, and of its content",
  untouched: "an attempt that is refused changes nothing",
  refused: "a key that a node has refused is asked for at the other, and nothing else is refused",
  cooldown: "a cooldown follows a lease that was held, once, and ends when it was to end",
  quiet: "a lease whose complete was sent is not lost",
  freed:
    "a lease that is freed leaves a tombstone with its owner id and its expiry, and is told of it",
  fenced: "fencing tokens rise from lease to lease, and a confirm gives the same one",
  acknowledged: "a record that a replica has acknowledged is there after a failover",
  full: "a full Redis refuses no release and no complete",
  script: "no script raises an error of its own",
} as const;

export type Invariant = keyof typeof invariants;

export interface Violation {
  readonly invariant: Invariant;
  readonly atMs: number;
  readonly text: string;
}

/** Rounding of clocks to milliseconds, timers that come late, a turn of the loop. */
export const slackMs = 4;

/** Watches a part of the world, and says what is broken there. */
export abstract class Watch {
  protected readonly world: World;

  constructor(world: World) {
    this.world = world;
  }
}
