import type { Mutation } from "../mutation.ts";

const timerWheel = "src/timer-wheel.ts";

/** Rules 10 and 12: timers of our own, and the estimate of Redis' clock. */
export const timerMutations: readonly Mutation[] = [
  {
    name: "no timer of our own ends an attempt",
    rule: "10",
    file: "src/lock/acquire.ts",
    find: 'if (now >= this.#endsAt) this.#end("unavailable");\n    // Rule 4',
    replace: 'if (now < 0) this.#end("unavailable");\n    // Rule 4',
  },
  {
    name: "a release waits for its answer for ever",
    rule: "10",
    file: "src/lock/release.ts",
    find: 'if (ageMs >= acquireTimeoutMs) this.#report("unconfirmed");',
    replace: "",
  },
  {
    name: "a timer overlooks an answer that lies ready",
    rule: "10",
    file: timerWheel,
    find: "setImmediate(this.#fire, Math.floor(performance.now() / this.#stepMs));",
    replace: "this.#fire(Math.floor(performance.now() / this.#stepMs));",
  },
  {
    name: "what is set for later is forgotten when something rings",
    rule: "10",
    file: timerWheel,
    find: "this.#armNext();\n    }",
    replace: "}",
  },
  {
    name: "the clock learns nothing",
    rule: "12",
    file: "src/stores/redis/redis-clock.ts",
    find: "this.#offset = Math.min(Math.max(this.#offset, lowest), highest);",
    replace: "void lowest; void highest;",
  },
];
