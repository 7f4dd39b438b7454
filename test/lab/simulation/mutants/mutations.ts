import { acquireMutations } from "./mutations/acquire.ts";
import { connectionMutations } from "./mutations/connections.ts";
import { leaseMutations } from "./mutations/lease.ts";
import { onceMutations } from "./mutations/once.ts";
import type { Mutation } from "./workshop.ts";

/*
 * Not in the list, because nothing can notice them:
 * - an extend that may shorten: every extend of one owner id gives the same life, counted from its
 *   execution, so a later execution never gives less than an earlier one;
 * - nothing that is retired after a complete: for as long as a late copy may take effect it finds the
 *   record, because of rule 11, and takes nothing;
 * - a second connection that re-sends: `maxRetriesPerRequest: 0` has settled its commands before.
 *
 * Too rare for these schedules (not met by 50 000 of them), and held by tests on a real Redis:
 * - another's tombstone that is taken for one's own, and a lease that was freed and is retired at the
 *   end of its handler only (test/redis/rule-19-freed.test.ts);
 * - another's record that is looked at before the expiry (test/redis/rule-15-once.test.ts);
 * - a complete that is given up and deletes its lock (test/redis/rule-14-close.test.ts).
 */

/** Every mutant, by the subject that it breaks. */
export const mutations: readonly Mutation[] = [
  ...acquireMutations,
  ...leaseMutations,
  ...connectionMutations,
  ...onceMutations,
];
