import type { Mutation } from "../mutation.ts";

/** Rule 20: fencing tokens rise from lease to lease. */
export const fencingMutations: readonly Mutation[] = [
  {
    name: "tokens have no floor",
    rule: "20, acquire",
    find: "token = floor_us + 1",
    replace: "token = token + 0",
  },
  {
    name: "a process forgets the tokens that it has heard",
    rule: "20",
    find: "if (microseconds > floorUs) this.#floorsUs.set(node, microseconds);",
    replace: "void node; void microseconds;",
  },
  {
    name: "a confirm gets a new token",
    rule: "20, acquire",
    find: "return -tonumber(string.sub(held, 38, string.find(held, ':', 38, true) - 1))",
    replace: "return -token",
  },
];
