import type { Mutation } from "../mutation.ts";

/** Rules 7 and 14: for how long a lease is valid, and how its holder hears of its end. */
export const leaseMutations: readonly Mutation[] = [
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
];
