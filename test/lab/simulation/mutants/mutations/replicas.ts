import type { Mutation } from "../mutation.ts";

/** Rule 21: what counts only when replicas have confirmed it. */
export const replicaMutations: readonly Mutation[] = [
  {
    name: "too few replicas are enough",
    rule: "21",
    find: "if (came >= replicas) return undefined;",
    replace: "if (came >= replicas - 1) return undefined;",
  },
  {
    name: "a replica is waited for by a touch that writes nothing",
    rule: "21, touch",
    find: "reply = redis.pcall('PEXPIRE', key, math.max(reply, 1))",
    replace: "reply = 1",
  },
  {
    name: "no replica is waited for by an acquire that has taken the lock",
    rule: "21",
    find: 'const isLock = kind === "taken" || kind === "mine";',
    replace: 'const isLock = kind === "mine";',
  },
  {
    name: "no replica is waited for by a confirm that finds its own lock",
    rule: "21",
    find: 'const isLock = kind === "taken" || kind === "mine";',
    replace: 'const isLock = kind === "taken";',
  },
  {
    name: "no replica is waited for by a complete",
    rule: "21",
    find: 'const isRecord = kind === "recorded" || kind === "late";',
    replace: "const isRecord = false;",
  },
];
