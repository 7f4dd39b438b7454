import type { Mutation } from "../mutation.ts";

const startAttempt = "src/lock/start-attempt.ts";

/** Rule 18: an attempt that was refused, and a look-up, leave nothing behind. */
export const refusedMutations: readonly Mutation[] = [
  {
    name: "a completed attempt is not retired",
    rule: "5, 18",
    file: startAttempt,
    find: 'if (outcome === "acquired" || mayHold) release',
    replace: 'if (outcome === "acquired" || (outcome !== "completed" && mayHold)) release',
  },
  {
    name: "a mismatched attempt is not retired",
    rule: "5, 18",
    file: startAttempt,
    find: 'if (outcome === "acquired" || mayHold) release',
    replace: 'if (outcome === "acquired" || (outcome !== "mismatched" && mayHold)) release',
  },
  {
    name: "a look-up takes what is free",
    rule: "18",
    file: "src/stores/redis/commands.ts",
    find: "acquireOnceCommand.head({ ...settings, deadlineMs: 0 })",
    replace: "acquireOnceCommand.head(settings)",
  },
];
