/*
 * The record of a submission: rules 15 to 17. Part of submit-lock.pml where RECORD is defined.
 *
 *   One submission. An owner may complete instead of releasing; the rival stands for everybody else
 *   who is at work on it, and may write a record at any time: a lease that was lost is recorded, too.
 *   Each complete goes in one step or in two, as on a Cluster that moves the slot.
 *   A full server may refuse a record.
 *
 *   With FORGET a person may delete the record that was looked at, also while a run has the lock: that a
 *   submission under way is not forgotten is for the person, and no property needs it.
 *
 *   What is not: fingerprints, cooldowns, and the answers themselves.
 */

/* retainMs: the shortest that rule 11 permits. */
#define RETAIN (2 * TIMEOUT)

unsigned record : 4 = NOBODY;   /* the owner id that wrote it */
unsigned record_life : 4 = 0;   /* ticks until it expires */

unsigned looked_at : 4 = NOBODY;     /* whose record a person has looked at */

bool no_blind_forget = true;   /* no person deletes a record that nobody has looked at */
bool once = true;              /* nobody is told "yes" while a record stands */
bool no_gap = true;            /* a valid lease that is being completed is followed by a record */
bool record_is_kept = true;    /* it is written once, by its first writer */
bool no_false_alarm = true;    /* nobody is told of a second run that was none */
bool no_lost_answer = true;    /* what is completed in time is on record, whoever holds the lock */

/* ---- The safeguards ---- */

#ifdef NO_LOOK
#define MAY_LOOK(o, c) false
#elif defined(NO_LOOK_IN_CONFIRM)
#define MAY_LOOK(o, c) (key != ID(o, c))
#else
#define MAY_LOOK(o, c) true
#endif

#ifdef NO_EXPIRY_FIRST
#define IS_DUPLICATE(o) (record != NOBODY && record != ID(o, 0))
#else
#define IS_DUPLICATE(o) (record != NOBODY && record != ID(o, 0) && me.expires > 0)
#endif

#ifdef NO_FIRST_WRITER
#define MAY_RECORD(o) (record != ID(o, 0) && me.expires > 0)
#elif defined(NO_RECORD_WITHOUT_LOCK)
#define MAY_RECORD(o) (record == NOBODY && me.expires > 0 && key == ID(o, 0))
#else
#define MAY_RECORD(o) (record == NOBODY && me.expires > 0)
#endif

#ifdef NO_COMPARE_IN_FORGET
#define MAY_FORGET (looked_at != NOBODY)
#else
#define MAY_FORGET (record == looked_at)
#endif

/* ---- The scripts ---- */

inline write_record(who, ticks) {
  record_is_kept = (record == NOBODY);
  assert(record_is_kept);
  record = who;
  record_life = ticks
}

/* A person deletes it. A copy of its complete that is still on its way may write it again. */
inline forget_record() {
  printf("a person forgets the record\n");
  no_blind_forget = (record == looked_at);
  assert(no_blind_forget);
  looked_at = NOBODY;
  record = NOBODY;
  record_life = 0;
  owner[0].recorded = false
}

/* Before its own lock is deleted. */
inline check_gap(o) {
  no_gap = !(me.phase == completing && me.valid > 0 && me.expires > 0 && record == NOBODY);
  assert(no_gap)
}

/* What a complete does about the lock: at once, or in a second step of its own, which is a release. */
inline let_go(o) {
  if
  :: MAY_DELETE(o) -> check_gap(o); key_is_free()
  :: true
  fi
}

inline execute_complete(o, is_settled) {
  is_settled = true;
  if
  :: record == ID(o, 0) -> printf("server: the record of owner %d stands\n", o)
  :: IS_DUPLICATE(o) ->
     printf("server: owner %d finds another record\n", o);
#ifndef NO_FIRST_WRITER
     no_false_alarm = !me.recorded;
     assert(no_false_alarm)
#endif
  :: MAY_RECORD(o) ->
     printf("server: owner %d is recorded\n", o);
     record_is_kept = !me.recorded;
     assert(record_is_kept);
     me.recorded = true;
     write_record(ID(o, 0), me.expires)
  :: MAY_RECORD(o) ->
     printf("server: the record of owner %d is refused\n", o);
     is_settled = false
  :: record == NOBODY && !MAY_RECORD(o) ->
     printf("server: owner %d comes too late for a record\n", o);
     no_lost_answer = (me.expires == 0);
     assert(no_lost_answer)
  :: record != NOBODY && record != ID(o, 0) && !IS_DUPLICATE(o) && !MAY_RECORD(o) ->
     printf("server: owner %d comes too late to be told of another record\n", o)
  fi;
#ifdef NO_LOCK_KEPT
  let_go(o)
#else
  if
  :: is_settled -> let_go(o)
  :: else
  fi
#endif
}

/* What comes after its expiry, and is not waited for, has nothing left to do. */
inline tidy_complete(o) {
  if
  :: me.phase != completing && me.expires == 0 -> me.complete = false; me.recorded = false
  :: else
  fi
}

/* ---- An owner's rules ---- */

inline begin_complete(o) {
  printf("owner %d completes\n", o);
  me.phase = completing;
  me.complete = true;
  me.expires = RETAIN;
  me.doubtful = false;
  me.overtaken = false;
  tidy(o)
}

inline read_replayed(o) {
  printf("owner %d is replayed to\n", o);
#ifdef NO_RETIRE_OF_REPLAYED
  be_done(o, false)
#else
  give_up(o)
#endif
}

/* ---- The network ---- */

inline deliver_complete(o, is_settled) {
#ifdef NO_RECORD_BEFORE_RELEASE
  /* In two steps, and in the wrong order. */
  if
  :: MAY_DELETE(o) -> check_gap(o); key_is_free()
  :: true -> execute_complete(o, is_settled)
  fi;
#else
  execute_complete(o, is_settled);
#endif
  /* An answer is read at once, or lost. A copy may still be on its way, as it may after any answer. */
  if
  :: is_settled && me.phase == completing -> me.age = 0; stop_holding(o)
  :: true
  fi;
  tidy_complete(o);
  is_settled = false
}

/* ---- Time ---- */

inline tick_record() {
  if
  :: record_life == 1 -> record = NOBODY; record_life = 0
  :: record_life > 1 -> record_life--
  :: else
  fi
}

inline tick_complete(o) {
#ifndef NO_ABSOLUTE_EXPIRY
  me.expires = DOWN(me.expires);
#endif
  if
  :: me.phase == completing && me.age == RETIRE_BOUND -> me.age = 0; be_done(o, true)
  :: me.phase == completing && me.age < RETIRE_BOUND -> me.age++
  :: else
  fi;
  tidy_complete(o)
}
