import type { Mutation } from "../workshop.ts";

export const leaseMutations: readonly Mutation[] = [
  // Rules 7 and 14: for how long a lease is valid, and how its holder hears of its end.
  {
    name: "the lease counts from the answer",
    rule: "1, 7",
    find: "inFlight,\n      this.#startedAt,",
    replace: "inFlight,\n      performance.now(),",
  },
  {
    name: "no margin for clocks that drift",
    rule: "7",
    find: "sentAt + 0.99 * ttlMs - 2",
    replace: "sentAt + ttlMs",
  },
  {
    name: "an extend counts from its answer",
    rule: "7",
    find: "this.validity.renewed(sentAt);",
    replace: "void sentAt; this.validity.renewed(performance.now());",
  },
  {
    name: "an extend counts without an answer",
    rule: "7",
    find: 'if (kind !== "done") return;',
    replace: "",
  },
  {
    name: "gone does not make a lease lost",
    rule: "7",
    find: 'this.#end("overtaken");',
    replace: "this.#setTimer();",
  },
  {
    name: "the end of a lease is not signalled",
    rule: "7",
    find: 'this.#end(extendAt < Number.POSITIVE_INFINITY ? "expired" : "max-hold");',
    replace: "void 0;",
  },
  {
    name: "the watchdog never extends",
    rule: "7",
    find: "now >= extendAt) this.#extend(now);",
    replace: "now < 0) this.#extend(now);",
  },
  {
    name: "close does not end leases",
    rule: "14",
    find: 'for (const lease of watchdogs.armed()) lease.lose("closed");',
    replace: "void watchdogs;",
  },
  {
    name: "a foreign key is extended as if it were ours",
    rule: "extend",
    find: "local owner_id = ARGV[1 + i]",
    replace: `local seen = redis.pcall('GET', key)
  local owner_id = type(seen) == 'string' and string.sub(seen, 1, 36) or ARGV[1 + i]`,
  },

  // Rules 10 and 12: timers of our own, and the estimate of Redis' clock.
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
