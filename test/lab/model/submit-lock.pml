/*
 * The protocol of submit-lock, small enough for spin to visit every state of it.
 *
 * `npm run lab -- model` runs it with everything on, and once more for each safeguard with that safeguard
 * off. By hand:
 *
 *   spin -a -DNO_RETIRE submit-lock.pml && cc -O2 -DSAFETY -DBFS -o pan pan.c && ./pan
 *   spin -t -T -DNO_RETIRE submit-lock.pml        # tells the counterexample as a story
 *
 * The scripts are src/stores/redis/commands, an owner's rules src/lock/acquire.ts, held-lease.ts,
 * release.ts and complete.ts. With RECORD there is the record of a submission besides: record.pml.
 * With PERSON somebody frees: free.pml. With STEP the server's clock may be set back by more than
 * anything lasts, which gives the key a life without an end until an attempt that is refused cuts it.
 * Deadlines are left as they are then: what is late may still take effect. With NODES the server is a
 * Cluster that moves the slot: a node may refuse an acquire unexecuted, which is then written again.
 * With SHARED it is about calls of several customers alone: shared.pml; with TOLD about what a run
 * tells those who wait for it: told.pml.
 *
 * What is in it
 *
 *   One key; one or two owners with the whole protocol, each on two bad connections; and a rival on
 *   a perfect connection, who stands for everybody else. An owner is one attempt with one owner id:
 *   the next attempt of the same caller is simply another owner.
 *
 *   The network delivers late and in any order, resets connections, and re-sends what a reset left
 *   unanswered as often as it likes. A lost message is one that is never delivered. Each copy is
 *   stamped by a clock that may be right, fast, slow or absurd, chosen anew for each: no safety may
 *   rest on what an estimate of a clock has learned.
 *
 *   Time goes in ticks with any number of steps between two. Nobody is in a hurry, so a pause needs
 *   no step of its own. Only what bounds an owner happens on its tick: the end of its budget, of its
 *   lease and of its retire, because later ends only give stragglers more time to be found.
 *   Everything that lasts is a count-down, so there is no horizon: the states are all there are.
 *
 * What is not
 *
 *   "An extend never shortens": it cannot here, and so needs no safeguard. Every extend of an owner
 *   id brings the same full life, so that the latest to arrive leaves the key the longest to live.
 *   The comparison in the script is for a key that was given a longer life by other means.
 *
 *   Clocks of different speed (lease.ts has a margin of 1 % + 2 ms for them), a server that loses
 *   its data or is given another clock, many keys in a call, maxHoldMs, and the timers that say when
 *   to send: here an owner may send whenever the rules permit it.
 */

#if defined(SHARED)
#include "shared.pml"
#elif defined(TOLD)
#include "told.pml"
#else

/* ---- Constants, in ticks ---- */

#ifndef OWNERS
#define OWNERS 2
#endif
/* acquireTimeoutMs. Longer ones take more states and more time. */
#ifndef TIMEOUT
#define TIMEOUT 1
#endif
/* The shortest life that the options allow for it: whatever is late finds the key expired soonest. */
#define TTL (2 * TIMEOUT)
#define WINDOW (2 * TIMEOUT)
/* Without open copies nothing is waited for, so this is how long an owner stays at its worst. */
#ifdef NO_RETIRE_BOUND
#define RETIRE_BOUND TIMEOUT
#else
#define RETIRE_BOUND (2 * TIMEOUT + TTL)
#endif
/* Extends of one owner that can be under way at a time. */
#ifndef EXTENDS
#define EXTENDS 1
#endif

/* A deadline is how many ticks it is away, plus one. */
#define PAST 0
#define IN(ticks) ((ticks) + 1)
/*
 * By a clock that is ahead by more than any message is delayed. One that is ahead by more than a
 * retire lasts, and a copy that is held up for just as long, are beyond what a retire can clean up:
 * WITH_LONGER_DELAYS shows it. The key is then blocked for one life.
 */
#define FAR_AHEAD 31

/* ---- The properties, named so that a violation says which one ---- */

bool mutual_exclusion = true;   /* no two leases are valid, each by its holder's own clock */
bool no_self_contention = true; /* nobody is refused because of themselves */
bool no_foreign_delete = true;  /* nobody deletes what somebody else took */
/*
 * Eventual freedom. An owner that is done is never at the key again, whatever is still on its way,
 * nor is it there when it is done; except that one whose retire reached its bound without an answer
 * may leave what its last message put there, for one life. Every owner that ended is done within
 * RETIRE_BOUND. So a key whose owners have ended is free, at the latest one life after that.
 */
bool no_orphan = true;
bool no_silent_loss = true;     /* whoever was overtaken does not go on as if nothing had happened */
bool no_needless_loss = true;   /* no lease ends before the time that an answer has proved */

/* ---- The server ---- */

#define NOBODY 0
#define RIVAL 15

/* The owner id that copy c of owner o carries. */
#if defined(NO_CONFIRM)
#define ID(o, c) (1 + (o) + (c) * OWNERS)
#elif defined(NO_FRESH_ID)
#define ID(o, c) 1
#else
#define ID(o, c) (1 + (o))
#endif

unsigned key : 4 = NOBODY;  /* the owner id at the key */
unsigned life : 4 = 0;      /* ticks until it expires */
/* With STEP: the server's clock was set back by more than anything lasts, so this life has no end. */
#define SET_BACK 15
unsigned taker : 4 = RIVAL; /* who took it; only the properties look at this */

/* ---- The owners ---- */

mtype = { idle, trying, holding, completing, retiring, done };
mtype = { nothing, granted, contended, refused, replayed };
mtype = { unused, under_way, answered };

/* The acquire on one connection. The first connection re-sends in silence, the second never. */
typedef Copy {
  bool open;             /* its owner reckons with its taking effect */
  bool wire;             /* it is on its way to the server */
  bool unclean;          /* it may have been re-sent */
  unsigned deadline : 5;
  mtype reply;           /* on its way back */
}

typedef Extend {
  mtype state;
  unsigned valid : 4;    /* how long the lease is good for, from now, if the answer is yes */
}

typedef Owner {
  mtype phase;
  unsigned valid : 4;    /* ticks until its lease ends, by its own clock */
  unsigned proved : 4;   /* the same, by the best answer it had; only the properties look at this */
  bool doubtful;         /* a copy was open when the lease was acquired */
  bool overtaken;        /* somebody else had the key meanwhile; only the properties look at this */
  Copy copy[2];
  Extend extend[EXTENDS];
  unsigned age : 5;      /* ticks since its retire began */
  bool release;          /* a compare-and-delete is on its way */
  unsigned open_until : 5; /* the latest deadline that was open when that was sent */
#ifdef RECORD
  bool complete;         /* a complete is on its way; every copy is the same */
  unsigned expires : 4;  /* ticks until its record is to expire, as it was stamped */
  bool recorded;         /* its record was written; only the properties look at this */
#endif
}

Owner owner[OWNERS];
#define me owner[o]
#define copy_ me.copy[c]
#define extend_ me.extend[e]

/* ---- The safeguards. Each -D takes one away. ---- */

/* A copy that comes after its deadline is refused. */
#ifdef NO_DEADLINE
#define NOT_TOO_LATE(deadline) true
#else
#define NOT_TOO_LATE(deadline) (deadline > PAST)
#endif

/* So is one that comes too long before it: its stamp is wrong, and it could take effect any time. */
#ifdef NO_WINDOW
#define NOT_TOO_EARLY(deadline) true
#else
#define NOT_TOO_EARLY(deadline) (deadline <= IN(WINDOW))
#endif

#ifdef NO_COMPARE_IN_EXTEND
#define MAY_EXTEND(o) (key != NOBODY)
#else
#define MAY_EXTEND(o) (key == ID(o, 0))
#endif

#ifdef NO_COMPARE_IN_DELETE
#define MAY_DELETE(o) (key != NOBODY)
#else
#define MAY_DELETE(o) (key == ID(o, 0))
#endif

/* An answer that came after a reset may hide another write of the same copy. */
#ifdef NO_EPOCH
#define CLEAN(o, c) true
#else
#define CLEAN(o, c) (!copy_.unclean)
#endif

/* The life of a lease counts from before the first send. */
#ifdef NO_LIFE_FROM_FIRST_SEND
#define GRANTED_LIFE(o) TTL
#else
#define GRANTED_LIFE(o) me.valid
#endif

/* An answered extend counts from its own send. */
#ifdef NO_EXTEND_FROM_SEND
#define EXTENDED_LIFE(o, e) TTL
#else
#define EXTENDED_LIFE(o, e) extend_.valid
#endif

/* An older extend that is answered late takes nothing away. */
#ifdef NO_NEVER_BACK
#define EXTENDED_VALID(o, e) EXTENDED_LIFE(o, e)
#else
#define EXTENDED_VALID(o, e) (EXTENDED_LIFE(o, e) > me.valid -> EXTENDED_LIFE(o, e) : me.valid)
#endif

/* Rule 18: who is refused after a step of the server's clock leaves the key its own life. */
#ifdef NO_WHOLE_LIFE
#define CUT_LIFE (TTL - 1)
#else
#define CUT_LIFE TTL
#endif

/*
 * A late answer to an extend may revive a lease that has run out, because it proves that the key was
 * its own all the time; unless a copy was open when the lease was acquired, and may have brought the
 * key back after somebody else had it.
 */
#ifdef NO_LOST_IS_LOST
#define LOST(o) false
#else
#define LOST(o) (me.valid == 0 && me.doubtful)
#endif

/* Rule 17: retiring begins when a complete was answered. */
#ifdef NO_WAIT_FOR_COMPLETE
#define MAY_RETIRE(o) (me.phase == retiring || me.phase == completing)
#else
#define MAY_RETIRE(o) (me.phase == retiring)
#endif

/* The watchdog extends until a complete was answered. */
#define IS_EXTENDED(o) (me.phase == holding || me.phase == completing)

/* The answer to a compare-and-delete that was executed after every deadline open at its send. */
#if defined(NO_FINALITY) || defined(NO_RETIRE)
#define FINAL(o) true
#else
#define FINAL(o) (me.open_until == PAST)
#endif

/* Owners are alike, so the first one may as well begin first. */
#ifdef NO_FRESH_ID
/* The second is the same caller, who comes back under the same owner id after the first order. */
#define MAY_BEGIN(o) (o == 0 || owner[0].phase == retiring || owner[0].phase == done)
#else
#define MAY_BEGIN(o) (o == 0 || owner[0].phase != idle)
#endif

/* Rule 23: a request that a node has refused keeps its deadline, which a retire counts on. */
#ifdef NO_FIRST_DEADLINE
#define AGAIN(deadline) IN(TIMEOUT)
#else
#define AGAIN(deadline) deadline
#endif

/* ---- What forgets: states that differ only in what can make no difference are one ---- */

#define DOWN(count) (count > 0 -> count - 1 : 0)
#define DOWN_UNLESS_FAR(deadline) (deadline == FAR_AHEAD -> FAR_AHEAD : DOWN(deadline))

/* Whether it is settled for ever that this copy does not take the key. */
#define NEVER(o, c) (!NOT_TOO_LATE(copy_.deadline) || (copy_.deadline == FAR_AHEAD && !NOT_TOO_EARLY(copy_.deadline)))

inline tidy_copy(o, c) {
  if
  :: me.phase != trying && (!NOT_TOO_LATE(copy_.deadline) || (!copy_.open && NEVER(o, c))) ->
     copy_.open = false;
     copy_.wire = false
  :: else
  fi;
  if
  :: me.phase != trying -> copy_.reply = nothing
  :: else
  fi;
  if
  :: !copy_.open && !copy_.wire -> copy_.deadline = PAST; copy_.unclean = false
  :: else
  fi
}

inline tidy_extend(o, e) {
  if
  :: !IS_EXTENDED(o) && extend_.state == answered -> extend_.state = unused
#ifndef NO_FRESH_ID
  /* It finds a key that is not its own, now and for ever. */
  :: me.phase == done && key != ID(o, 0) -> extend_.state = unused
#endif
  :: else
  fi;
  if
  :: !IS_EXTENDED(o) || extend_.state == unused -> extend_.valid = 0
  :: else
  fi
}

inline tidy_release(o) {
#if !defined(NO_FRESH_ID) && !defined(NO_COMPARE_IN_DELETE)
  if
  :: me.phase == done && key != ID(o, 0) -> me.release = false
  :: else
  fi;
#endif
  if
  :: !MAY_RETIRE(o) || !me.release -> me.open_until = PAST
  :: else
  fi
}

inline tidy(o) {
  tidy_copy(o, 0);
  tidy_copy(o, 1);
  tidy_extend(o, 0);
#if EXTENDS > 1
  tidy_extend(o, 1);
#endif
  tidy_release(o)
}

#ifdef RECORD
#include "record.pml"
#endif

/* ---- The three scripts ---- */

#define HOLDS(o) (owner[o].phase == holding && owner[o].valid > 0)

inline check_mutual_exclusion() {
#if OWNERS > 1
  mutual_exclusion = !(HOLDS(0) && (HOLDS(1) || key == RIVAL)) && !(HOLDS(1) && key == RIVAL);
#else
  mutual_exclusion = !(HOLDS(0) && key == RIVAL);
#endif
  assert(mutual_exclusion)
}

inline key_is_taken(id, who) {
  key = id;
  life = TTL;
  taker = who;
  owner[0].overtaken = owner[0].overtaken || (owner[0].phase == holding && who != 0);
#if OWNERS > 1
  owner[1].overtaken = owner[1].overtaken || (owner[1].phase == holding && who != 1);
#endif
}

inline key_is_free() {
  key = NOBODY;
  life = 0;
  taker = RIVAL
}

/* The record is read before the lock. */
#ifdef RECORD
#define FINDS_RECORD(o, c) (record != NOBODY && MAY_LOOK(o, c))
#else
#define FINDS_RECORD(o, c) false
#endif

inline grant(answer) {
  answer = granted;
#ifdef RECORD
  once = (record == NOBODY);
  assert(once)
#endif
}

inline execute_acquire(o, c, answer) {
  if
  :: FINDS_RECORD(o, c) -> answer = replayed
  :: !FINDS_RECORD(o, c) && key == ID(o, c) -> grant(answer) /* mine: the life stays */
  :: !FINDS_RECORD(o, c) && key != ID(o, c) && key != NOBODY ->
     answer = contended;
     no_self_contention = (taker != o);
     assert(no_self_contention)
  :: !FINDS_RECORD(o, c) && key == NOBODY &&
     NOT_TOO_LATE(copy_.deadline) && NOT_TOO_EARLY(copy_.deadline) ->
     grant(answer);
     key_is_taken(ID(o, c), o);
     no_orphan = (me.phase != done);
     assert(no_orphan)
#ifdef NO_KEYLESS_CALL
  /* Rule 23: the node that is to get the slot does not see the key, and after ASKING refuses none. */
  :: !FINDS_RECORD(o, c) && key != ID(o, c) && key != NOBODY &&
     NOT_TOO_LATE(copy_.deadline) && NOT_TOO_EARLY(copy_.deadline) ->
     mutual_exclusion = (key != RIVAL); /* who still holds */
     assert(mutual_exclusion);
     grant(answer);
     key_is_taken(ID(o, c), o)
#endif
  :: else -> answer = refused
  fi;
  printf("server: copy %d of owner %d is %e\n", c, o, answer)
}

inline execute_extend(o) {
  if
  :: MAY_EXTEND(o) && life != SET_BACK -> life = TTL
  :: else
  fi
}

inline execute_release(o) {
  if
  :: MAY_DELETE(o) ->
     printf("server: the release of owner %d deletes the key\n", o);
     no_foreign_delete = (taker == o);
     assert(no_foreign_delete);
#ifdef RECORD
     check_gap(o);
#endif
     key_is_free()
  :: else -> printf("server: the release of owner %d finds nothing of its own\n", o)
  fi
}

/* ---- An owner's rules ---- */

#define WITHIN_BUDGET(o) (me.valid > TTL - TIMEOUT)
#define BUSY(o, c) (me.copy[c].open || me.copy[c].wire)

inline send_copy(o, c, stamp) {
  copy_.open = true;
  copy_.wire = true;
  copy_.deadline = stamp;
  printf("owner %d sends copy %d, good for %d ticks\n", o, c, stamp - 1)
}

/* A clean answer closes the copy. */
inline close_copy(o, c) {
  if
  :: CLEAN(o, c) -> copy_.open = false
  :: else
  fi;
  copy_.reply = nothing
}

/* The verdict has been given. What was answered besides is read as well, or never. */
inline stop_trying(o, next) {
  me.phase = next;
  if
  :: me.copy[0].reply != nothing -> close_copy(o, 0)
  :: true
  fi;
  if
  :: me.copy[1].reply != nothing -> close_copy(o, 1)
  :: true
  fi;
  tidy(o)
}

inline be_done(o, abandoned) {
  printf("owner %d is done\n", o);
  me.phase = done;
  me.valid = 0;
  me.proved = 0;
  me.age = 0;
  me.copy[0].open = false;
  me.copy[1].open = false;
  no_orphan = (abandoned || key == NOBODY || taker != o);
  assert(no_orphan);
  /* Of all the compare-and-deletes that were sent, one may still be on its way. */
  me.release = true;
  tidy(o)
}

inline stop_holding(o) {
  printf("owner %d holds no longer\n", o);
  me.phase = retiring;
  me.valid = 0;
  me.proved = 0;
  me.doubtful = false;
  me.overtaken = false;
  tidy(o)
}

/* Any ending with an open copy retires. */
inline give_up(o) {
  printf("owner %d gives up\n", o);
  me.valid = 0;
#ifndef NO_RETIRE
  if
  :: me.copy[0].open || me.copy[1].open -> stop_trying(o, retiring)
  :: else -> be_done(o, false)
  fi
#else
  be_done(o, false)
#endif
}

inline read_copy(o, c, answer) {
  answer = copy_.reply;
  printf("owner %d reads: copy %d is %e\n", o, c, answer);
  close_copy(o, c);
  if
  :: answer == granted ->
     me.valid = GRANTED_LIFE(o);
     me.doubtful = (me.copy[0].open || me.copy[1].open);
     stop_trying(o, holding);
     check_mutual_exclusion()
  :: answer == contended -> give_up(o)
#ifdef RECORD
  :: answer == replayed -> read_replayed(o)
#endif
  :: else -> tidy_copy(o, c) /* refused: another copy may go out */
  fi;
  answer = 0
}

inline send_extend(o, e) {
  printf("owner %d sends extend %d\n", o, e);
  extend_.state = under_way;
  extend_.valid = TTL
}

inline read_extend(o, e) {
  printf("owner %d reads that extend %d was done\n", o, e);
  if
  :: LOST(o) -> stop_holding(o)
  :: else ->
     me.proved = (EXTENDED_LIFE(o, e) > me.valid -> EXTENDED_LIFE(o, e) : me.valid);
     me.valid = EXTENDED_VALID(o, e);
     check_mutual_exclusion();
     no_silent_loss = !(HOLDS(o) && me.overtaken);
     assert(no_silent_loss)
  fi;
  extend_.state = unused;
  extend_.valid = 0
}

#define OPEN_DEADLINE(o, c) (me.copy[c].open -> me.copy[c].deadline : PAST)

/* Read before the send: a copy that is closed later was open when this one was on its way. */
inline send_release(o) {
  printf("owner %d sends a release\n", o);
  me.release = true;
  me.open_until = OPEN_DEADLINE(o, 0);
  if
  :: OPEN_DEADLINE(o, 1) > me.open_until -> me.open_until = OPEN_DEADLINE(o, 1)
  :: else
  fi
}

/* The first copy, a confirm and another try after "refused" are one and the same. */
#define MAY_SEND(o) (me.phase == trying && WITHIN_BUDGET(o))
#define MAY_SEND_FIRST(o) (MAY_SEND(o) && !BUSY(o, 0))
#define IS_READABLE(o, c) (me.copy[c].reply != nothing)
#define MAY_SEND_SECOND(o) (MAY_SEND(o) && BUSY(o, 0) && !BUSY(o, 1))

proctype client(byte o) {
  mtype answer;
end:
  do
  :: d_step {
       me.phase == idle && MAY_BEGIN(o) ->
       printf("owner %d begins\n", o);
       me.phase = trying;
       me.valid = TTL
     }

  :: d_step { MAY_SEND_FIRST(o) -> send_copy(o, 0, IN(TIMEOUT)) }
  :: d_step { MAY_SEND_FIRST(o) -> send_copy(o, 0, IN(2 * TIMEOUT)) }
  :: d_step { MAY_SEND_FIRST(o) -> send_copy(o, 0, FAR_AHEAD) }
  :: d_step { MAY_SEND_FIRST(o) -> send_copy(o, 0, PAST) }
  :: d_step { MAY_SEND_SECOND(o) -> send_copy(o, 1, IN(TIMEOUT)) }
  :: d_step { MAY_SEND_SECOND(o) -> send_copy(o, 1, IN(2 * TIMEOUT)) }
  :: d_step { MAY_SEND_SECOND(o) -> send_copy(o, 1, FAR_AHEAD) }
  :: d_step { MAY_SEND_SECOND(o) -> send_copy(o, 1, PAST) }
#ifdef WITH_LONGER_DELAYS
  /* A limit, not a safeguard: a message that is delayed by as much as the clock is wrong. */
  :: d_step { MAY_SEND_FIRST(o) -> send_copy(o, 0, IN(2 * RETIRE_BOUND)) }
#endif
  :: atomic { IS_READABLE(o, 0) -> read_copy(o, 0, answer) }
  :: atomic { IS_READABLE(o, 1) -> read_copy(o, 1, answer) }

  :: d_step { IS_EXTENDED(o) && me.extend[0].state == unused -> send_extend(o, 0) }
  :: d_step { me.extend[0].state == answered -> read_extend(o, 0) }
#if EXTENDS > 1
  :: d_step { IS_EXTENDED(o) && me.extend[1].state == unused -> send_extend(o, 1) }
  :: d_step { me.extend[1].state == answered -> read_extend(o, 1) }
#endif
  :: d_step { me.phase == holding -> stop_holding(o) }
#ifdef RECORD
  :: d_step { me.phase == holding -> begin_complete(o) }
  :: d_step { me.phase == completing && !me.complete -> me.complete = true }
#endif

  :: d_step { MAY_RETIRE(o) -> send_release(o) }
  od
}

/* ---- The network of one owner ---- */

inline deliver_copy(o, c, answer) {
  execute_acquire(o, c, answer);
  if
  :: copy_.wire = false
  :: copy_.unclean /* it was re-sent, so there is another */
  fi;
  if
  :: copy_.open && me.phase == trying && copy_.reply == nothing -> copy_.reply = answer
  :: copy_.open && me.phase != trying -> close_copy(o, c) /* only closing it is left to do */
  :: true
  fi;
  tidy_copy(o, c);
  answer = 0
}

/* Rule 23: the node does not have the key, or not yet. */
inline refuse_copy(o, c) {
  printf("server: copy %d of owner %d is refused by its node, and written again\n", c, o);
  copy_.deadline = AGAIN(copy_.deadline);
  tidy_copy(o, c)
}

/* Only the first connection re-sends; what is unanswered on the second simply stays so. */
inline reset_connection(o) {
  printf("reset: connection 0 of owner %d\n", o);
  me.copy[0].unclean = true;
  me.copy[0].wire = true;
  me.copy[0].reply = nothing
}

inline deliver_extend(o, e) {
  printf("server: extend %d of owner %d finds %d\n", e, o, key);
  if
  /* It was re-sent, so there is another. */
  :: execute_extend(o)
  /* "No" needs no answer here: the holder may stop at any time. */
  :: extend_.state = (IS_EXTENDED(o) && MAY_EXTEND(o) -> answered : unused);
     execute_extend(o);
     tidy_extend(o, e)
  fi
}

inline deliver_release(o) {
  execute_release(o);
  if
  /* After a final answer nobody can tell when it is read, so it is read at once. */
  :: me.phase == retiring && FINAL(o) -> be_done(o, false)
  :: me.release = false
  :: true /* it was re-sent, so there is another */
  fi;
  tidy_release(o)
}

proctype network(byte o) {
  mtype answer;
#ifdef RECORD
  bool is_settled;
#endif
end:
  do
  :: atomic { me.copy[0].wire -> deliver_copy(o, 0, answer) }
  :: atomic { me.copy[1].wire -> deliver_copy(o, 1, answer) }
#ifdef NODES
  :: d_step { me.copy[0].wire -> refuse_copy(o, 0) }
  :: d_step { me.copy[1].wire -> refuse_copy(o, 1) }
#endif
  :: d_step { me.copy[0].open && !(me.copy[0].unclean && me.copy[0].wire) -> reset_connection(o) }
  :: atomic { me.extend[0].state == under_way -> deliver_extend(o, 0) }
#if EXTENDS > 1
  :: atomic { me.extend[1].state == under_way -> deliver_extend(o, 1) }
#endif
  :: atomic { me.release -> deliver_release(o) }
#ifdef RECORD
  :: atomic { me.complete -> deliver_complete(o, is_settled) }
#endif
  od
}

#define IS_OWNERS (key != NOBODY && key != RIVAL)

/* ---- The rival takes what is free and keeps it for as long as it likes ---- */

proctype rival() {
end:
  do
  :: d_step {
       key == NOBODY ->
       printf("the rival takes the key\n");
       key_is_taken(RIVAL, RIVAL);
       check_mutual_exclusion()
     }
  :: d_step { key == RIVAL -> printf("the rival releases\n"); key_is_free() }
#ifdef STEP
  :: d_step { IS_OWNERS && life != SET_BACK -> printf("server: the clock is set back\n"); life = SET_BACK }
  :: d_step { IS_OWNERS && life == SET_BACK -> printf("the rival cuts the life\n"); life = CUT_LIFE }
#endif
#ifdef RECORD
  :: d_step { record == NOBODY -> printf("the rival is recorded\n"); write_record(RIVAL, RETAIN) }
#ifdef FORGET
  :: d_step { record != NOBODY && looked_at == NOBODY -> printf("a person looks\n"); looked_at = record }
  :: d_step { record != NOBODY && MAY_FORGET -> forget_record() }
  :: d_step { looked_at != NOBODY -> printf("a person leaves\n"); looked_at = NOBODY }
#endif
#endif
  od
}

#ifdef PERSON
#include "free.pml"
#endif

/* ---- Time ---- */

inline tick(o) {
  me.valid = DOWN(me.valid);
  me.proved = DOWN(me.proved);
  me.copy[0].deadline = DOWN_UNLESS_FAR(me.copy[0].deadline);
  me.copy[1].deadline = DOWN_UNLESS_FAR(me.copy[1].deadline);
  me.open_until = DOWN_UNLESS_FAR(me.open_until);
  me.extend[0].valid = DOWN(me.extend[0].valid);
#if EXTENDS > 1
  me.extend[1].valid = DOWN(me.extend[1].valid);
#endif
  if
  :: me.phase == trying && !WITHIN_BUDGET(o) -> give_up(o)
  :: me.phase == holding && me.valid == 0 ->
     no_needless_loss = (me.proved == 0);
     assert(no_needless_loss);
     if
     :: LOST(o) -> stop_holding(o)
     :: else
     fi
  :: me.phase == retiring && me.age == RETIRE_BOUND -> be_done(o, true)
  :: me.phase == retiring && me.age < RETIRE_BOUND -> me.age++
  :: else
  fi;
#ifdef RECORD
  tick_complete(o);
#endif
  tidy(o)
}

proctype clock() {
end:
  do
  :: atomic {
       true ->
       printf("-- tick\n");
       if
       :: key != RIVAL && life == 1 -> key_is_free()
       :: key != RIVAL && life > 1 && life != SET_BACK -> life--
       :: else
       fi;
#ifdef RECORD
       tick_record();
#endif
       tick(0);
#if OWNERS > 1
       tick(1)
#endif
     }
  od
}

inline prepare(o) {
  me.phase = idle;
  me.copy[0].reply = nothing;
  me.copy[1].reply = nothing;
  me.extend[0].state = unused;
#if EXTENDS > 1
  me.extend[1].state = unused;
#endif
  run client(o);
  run network(o)
}

init {
  atomic {
    prepare(0);
#if OWNERS > 1
    prepare(1);
#endif
    run rival();
#ifdef PERSON
    run person();
#endif
    run clock()
  }
}

#endif
