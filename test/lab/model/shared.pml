/*
 * Calls with the keys of several customers: rule 24. In the place of submit-lock.pml where SHARED is
 * defined.
 *
 *   Two customers, whose keys are at home on different shards where there are two, and two processes.
 *   A process asks for both customers in one call, in either order, or for one alone. Whatever stands
 *   between sends a call where its first key is at home. Whether calls may be shared is asked by a
 *   write, whose answer may be as late as it likes. In cluster mode a call of several is refused.
 *
 *   What is not: time, lost messages and leases, which are in submit-lock.pml.
 */

#define NONE 2                       /* nobody holds it */
#define HOME(key) ((key) % shards)

byte shards = 1;
bool refuses = false;                /* cluster mode */
byte held[4] = NONE;                 /* by shard and key, who holds it there */
bool believed[4] = false;            /* by process and customer, that it holds the lock */
mtype = { unknown, yes, no };
mtype verdict[2] = unknown;

bool mutual_exclusion = true;        /* no customer's lock has two holders */

#ifdef NO_QUESTION
#define MAY_SHARE(p) (!refuses)
#else
#define MAY_SHARE(p) (verdict[p] == yes)
#endif

#ifdef NO_READ_BACK
#define IS_FOUND true
#else
#define IS_FOUND (HOME(1) == HOME(0))
#endif

/* A key in a call that was sent to a shard. */
inline acquire(p, key, shard) {
  if
  :: held[2 * (shard) + key] == NONE ->
     held[2 * (shard) + key] = p;
     printf("server: process %d has the lock of customer %d on shard %d\n", p, key, shard);
     believed[2 * p + key] = true;
     mutual_exclusion = !(believed[key] && believed[2 + key]);
     assert(mutual_exclusion)
  :: else
  fi
}

inline release(p, key) {
  believed[2 * p + key] = false;
  if
  :: held[key] == p -> held[key] = NONE
  :: held[2 + key] == p -> held[2 + key] = NONE
  :: else
  fi
}

proctype process(byte p) {
end:
  do
  :: d_step { verdict[p] == unknown ->
       printf("owner %d asks: two keys are written by one call, and read by two\n", p);
       if
       :: !refuses && IS_FOUND -> verdict[p] = yes
       :: else -> verdict[p] = no
       fi
     }
  :: d_step { !believed[2 * p] -> acquire(p, 0, HOME(0)) }
  :: d_step { !believed[2 * p + 1] -> acquire(p, 1, HOME(1)) }
  :: d_step { MAY_SHARE(p) && !believed[2 * p] && !believed[2 * p + 1] ->
       printf("owner %d asks for both, customer 0 first\n", p);
       acquire(p, 0, HOME(0));
       acquire(p, 1, HOME(0))
     }
  :: d_step { MAY_SHARE(p) && !believed[2 * p] && !believed[2 * p + 1] ->
       printf("owner %d asks for both, customer 1 first\n", p);
       acquire(p, 1, HOME(1));
       acquire(p, 0, HOME(1))
     }
  :: d_step { believed[2 * p] -> release(p, 0) }
  :: d_step { believed[2 * p + 1] -> release(p, 1) }
  od
}

init {
  atomic {
    if
    :: shards = 1
    :: shards = 2
    :: shards = 2; refuses = true
    fi;
    run process(0);
    run process(1)
  }
}
