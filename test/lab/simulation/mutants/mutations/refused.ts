import { type Mutation, retiredWhen } from "../mutation.ts";

/** Rule 18: an attempt that was refused, and a look-up, leave nothing behind. */
export const refusedMutations: readonly Mutation[] = [
  {
    name: "a completed attempt is not retired",
    isRare: true,
    rule: "5, 18",
    find: retiredWhen,
    replace: `if (settled.outcome === "completed") void 0; else ${retiredWhen}`,
  },
  {
    name: "a mismatched attempt is not retired",
    isRare: true,
    rule: "5, 18",
    find: retiredWhen,
    replace: `if (settled.outcome === "mismatched") void 0; else ${retiredWhen}`,
  },
  {
    name: "a look-up takes what is free",
    rule: "18",
    find: "head({ ...settings, deadlineMs: 0 })",
    replace: "head(settings)",
  },
];
