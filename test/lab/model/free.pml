/*
 * A person who takes a lock away: rule 19. Part of submit-lock.pml where PERSON is defined.
 *
 *   The person has seen whose lock it is, and frees that one at any time after, as often as they
 *   like: the requests may be late, or come twice. The holder need not be told by an answer, because
 *   it may stop at any time; what matters is that nobody else gets in while it may go on.
 */

/* The values of the key that stand for the tombstones of the owner ids. */
#define TOMBSTONE(id) (8 + (id))
#define IS_LEASE(value) (value != NOBODY && value < TOMBSTONE(NOBODY))

unsigned seen : 4 = NOBODY;      /* the owner id that the person has seen */

bool no_foreign_free = true;     /* who is freed is who was seen */

#ifdef NO_COMPARE_IN_FREE
#define MAY_FREE (IS_LEASE(key) || key == RIVAL)
#else
#define MAY_FREE (key == seen)
#endif

inline free_key() {
  printf("server: a person frees %d\n", key);
  no_foreign_free = (key == seen);
  assert(no_foreign_free);
#ifdef NO_TOMBSTONE
  key_is_free()
#else
  key = TOMBSTONE(key);
  taker = RIVAL; /* it is foreign to everybody, its own holder included */
#ifdef NO_KEPT_EXPIRY
  life = 1 /* of its own, and too short for the holder */
#endif
#endif
}

proctype person() {
end:
  do
  :: d_step { IS_LEASE(key) && key != seen -> printf("a person sees %d\n", key); seen = key }
  :: atomic { seen != NOBODY && MAY_FREE -> free_key() }
  od
}
