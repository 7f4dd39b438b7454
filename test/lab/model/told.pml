/*
 * What a run tells those who wait for it: rule 25. In the place of submit-lock.pml where TOLD is
 * defined.
 *
 *   Runs of one submission id, of two contents, hold its lock one after another. Each ends with an
 *   answer that it tells, or dies. Two callers that are contended wait, look now and then, and are told
 *   what the run has told that they wait for. Where another run is at work by then, they wait for it.
 *
 *   What is not: time, records, lost messages, which are in submit-lock.pml; and an answer that a later
 *   run has told over before the caller looked, which is a 409.
 */

#define RUNS 4

byte holder = 0;                     /* the run that has the lock; 0 for none */
byte told = 0;                       /* the run whose answer is there; 0 for none */
byte owed = 0;                       /* the run that has let go, and tells later */
byte begun = 0;                      /* how many runs have begun */
bool content[RUNS + 1];
bool tells[RUNS + 1];
bool is_over[RUNS + 1];              /* a later run has told over its answer */

bool told_its_own = true;            /* by a run of its content that ended while it waited */
bool told_at_all = true;             /* where its run has told, a caller learns it */

#ifdef NO_RUN_COMPARED
#define IS_FOR(other) (told != 0)
#else
#define IS_FOR(other) (told == other)
#endif

inline tell(teller) {
  is_over[told] = true;
  told = teller;
  printf("server: the answer of run %d is there\n", teller)
}

active proctype shop() {
end:
  do
  :: d_step { holder == 0 && begun < RUNS ->
       begun++;
       holder = begun;
       if
       :: content[holder] = false
       :: content[holder] = true
       fi;
       printf("owner of run %d holds the lock, content %d\n", holder, content[holder])
     }
  :: d_step { holder != 0 -> printf("owner of run %d dies\n", holder); holder = 0 }
  :: d_step { holder != 0 && owed == 0 ->
       tells[holder] = true;
       printf("owner of run %d lets go\n", holder);
#ifdef NO_ONE_STEP
       owed = holder;
#else
       tell(holder);
#endif
       holder = 0
     }
  :: d_step { owed != 0 -> tell(owed); owed = 0 }
  od
}

active [2] proctype caller() {
  bool waits = false;
  bool own = false;
  byte awaited = 0;
  byte from = 0;
end:
  do
  :: d_step { !waits && holder != 0 ->
       waits = true;
       own = content[holder];
       awaited = holder;
       from = holder;
       printf("owner %d is contended, and waits for run %d\n", _pid, awaited)
     }
  :: d_step { waits ->
       if
       :: IS_FOR(awaited) ->
          printf("owner %d is told by run %d\n", _pid, told);
          told_its_own = (told >= from && content[told] == own);
          assert(told_its_own);
          waits = false
       :: else ->
          told_at_all = !(tells[awaited] && !is_over[awaited]);
          assert(told_at_all);
          if
          :: holder != 0 && content[holder] == own -> awaited = holder
          :: else -> waits = false
          fi
       fi
     }
  od
}
