/** What is compiled into the model: how large it is, and which safeguard it lacks. */

/** Small, with longer budgets and two extends under way: enough for a counterexample of most. */
export const ONE_OWNER = ["-DOWNERS=1", "-DTIMEOUT=2", "-DEXTENDS=2"];
export const TWO_OWNERS = ["-DOWNERS=2", "-DTIMEOUT=1", "-DEXTENDS=1"];
/** The rival stands for everybody else: with two owners the states take more than 4 GB. */
export const RECORD = ["-DOWNERS=1", "-DTIMEOUT=1", "-DEXTENDS=1", "-DRECORD"];
export const LONGER_RECORD = ["-DOWNERS=1", "-DTIMEOUT=2", "-DEXTENDS=1", "-DRECORD"];
const PERSON = ["-DOWNERS=1", "-DTIMEOUT=1", "-DEXTENDS=1", "-DPERSON"];

export interface Switch {
  readonly flag: string;
  readonly what: string;
  readonly violates: string;
  readonly constants: readonly string[];
}

const one = (flag: string, what: string, violates: string): Switch => ({
  flag,
  what,
  violates,
  constants: ONE_OWNER,
});

const recorded = (flag: string, what: string, violates: string): Switch => ({
  flag,
  what,
  violates,
  constants: RECORD,
});

const freed = (flag: string, what: string, violates: string): Switch => ({
  flag,
  what,
  violates,
  constants: PERSON,
});

export const SAFEGUARDS: readonly Switch[] = [
  one("NO_CONFIRM", "confirm with the same owner id", "no_self_contention"),
  {
    flag: "NO_FRESH_ID",
    what: "a fresh owner id for each attempt",
    violates: "no_foreign_delete",
    // Somebody has to come back under the same id.
    constants: TWO_OWNERS,
  },
  one("NO_DEADLINE", "deadline of a copy", "no_orphan"),
  one("NO_WINDOW", "window before the deadline", "no_orphan"),
  one("NO_EPOCH", "unclean answers do not close a copy", "no_orphan"),
  one("NO_RETIRE", "retire", "no_orphan"),
  one("NO_FINALITY", "finality by the server's clock", "no_orphan"),
  one("NO_RETIRE_BOUND", "full length of a retire", "no_orphan"),
  one("NO_COMPARE_IN_DELETE", "compare in delete", "no_foreign_delete"),
  one("NO_COMPARE_IN_EXTEND", "compare in extend", "mutual_exclusion"),
  one("NO_LIFE_FROM_FIRST_SEND", "life from before the first send", "mutual_exclusion"),
  one("NO_EXTEND_FROM_SEND", "extend counts from its send", "mutual_exclusion"),
  one("NO_NEVER_BACK", "an older extend takes nothing away", "no_needless_loss"),
  one("NO_LOST_IS_LOST", "a doubtful lease that ran out is lost", "no_silent_loss"),
  recorded("NO_LOOK", "an acquire looks for the record", "once"),
  recorded("NO_LOOK_IN_CONFIRM", "a record beats one's own lock", "once"),
  recorded("NO_RECORD_BEFORE_RELEASE", "in two steps: record, then release", "no_gap"),
  recorded("NO_LOCK_KEPT", "the lock stays where the record is refused", "no_gap"),
  recorded("NO_WAIT_FOR_COMPLETE", "retiring waits for the complete", "no_gap"),
  recorded("NO_FIRST_WRITER", "the first writer of a record wins", "record_is_kept"),
  recorded("NO_ABSOLUTE_EXPIRY", "the expiry is equal in every copy", "record_is_kept"),
  recorded("NO_EXPIRY_FIRST", "too late is said before another's record", "no_false_alarm"),
  recorded("NO_RECORD_WITHOUT_LOCK", "a record does not need the lock", "no_lost_answer"),
  recorded("NO_RETIRE_OF_REPLAYED", "a retire after a replay", "no_orphan"),
  {
    flag: "NO_WHOLE_LIFE",
    what: "a life that a clock has lengthened is cut to no less than its own",
    violates: "mutual_exclusion",
    constants: [...ONE_OWNER, "-DSTEP"],
  },
  {
    flag: "NO_FIRST_DEADLINE",
    what: "what a node has refused keeps its deadline",
    violates: "no_orphan",
    constants: [...ONE_OWNER, "-DNODES"],
  },
  {
    flag: "NO_KEYLESS_CALL",
    what: "a gathered call declares no key",
    violates: "mutual_exclusion",
    constants: [...ONE_OWNER, "-DNODES"],
  },
  freed("NO_TOMBSTONE", "free leaves a tombstone", "mutual_exclusion"),
  freed("NO_KEPT_EXPIRY", "a tombstone keeps the expiry", "mutual_exclusion"),
  freed("NO_COMPARE_IN_FREE", "compare in free", "no_foreign_free"),
];

export const LIMITS: readonly Switch[] = [
  one("WITH_LONGER_DELAYS", "delay as long as the clock is wrong", "no_orphan"),
];
