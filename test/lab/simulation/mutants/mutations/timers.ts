import type { Mutation } from "../mutation.ts";

/** Rules 10 and 12: timers of our own, and the estimate of Redis' clock. */
export const timerMutations: readonly Mutation[] = [
  {
    name: "no timer of our own ends an attempt",
    rule: "10",
    find: "if (now >= this.#endsAt) this.#unavailable();\n    // Rule 4",
    replace: "if (now < 0) this.#unavailable();\n    // Rule 4",
  },
  {
    name: "a release waits for its answer for ever",
    rule: "10",
    find: 'if (ageMs >= this.#reportAfterMs) this.report("unconfirmed");',
    replace: "",
  },
  {
    name: "a timer overlooks an answer that lies ready",
    rule: "10",
    find: "setImmediate(this.#fire, Math.floor(performance.now() / this.#stepMs));",
    replace: "this.#fire(Math.floor(performance.now() / this.#stepMs));",
  },
  {
    name: "what is set for later is forgotten when something rings",
    rule: "10",
    find: "if (next < this.#armedFor) this.#arm(next);",
    replace: "void next;",
  },
  {
    name: "the clock learns nothing",
    rule: "12",
    find: "this.#offset = Math.min(Math.max(this.#offset, lowest), highest);",
    replace: "void lowest; void highest;",
  },
];
