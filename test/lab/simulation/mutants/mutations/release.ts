import type { Mutation } from "../mutation.ts";

const startAttempt = "src/lock/start-attempt.ts";
const release = "src/lock/release.ts";

/** Rules 5, 6 and 8: who has to let go of a lock, for how long, and what its release says. */
export const releaseMutations: readonly Mutation[] = [
  {
    name: "an unavailable attempt is not retired",
    rule: "5",
    file: startAttempt,
    find: 'if (outcome === "acquired" || mayHold) release',
    replace: 'void mayHold; if (outcome === "acquired") release',
  },
  {
    name: "a contended attempt with open copies is not retired",
    rule: "5",
    file: startAttempt,
    find: 'if (outcome === "acquired" || mayHold) release',
    replace: 'if (outcome === "acquired" || (outcome !== "contended" && mayHold)) release',
  },
  {
    name: "a lease forgets its open copies",
    rule: "5",
    file: startAttempt,
    find: "return new HeldLease(runtime, command, acquisition);",
    replace:
      "return new HeldLease(runtime, command, { ...acquisition, inFlight: new InFlight() });",
    also: {
      find: "import { HeldLease,",
      replace: 'import { InFlight } from "./in-flight.ts";\nimport { HeldLease,',
    },
  },
  {
    name: "a retire is final at its first answer",
    rule: "6",
    file: release,
    find: 'if (reply.storeTimeMs > request.inFlightUntilMs) this.#end("final");',
    replace: 'this.#end("final");',
  },
  {
    name: "a retire asks only once",
    rule: "6",
    file: release,
    find: "if (now >= this.#notBefore) this.send(now);\n      else this.#setTimer(now);",
    replace: "this.#setTimer(now);",
  },
  {
    name: "a retire goes by this process' own clock",
    rule: "6, 12",
    file: release,
    find: 'if (reply.storeTimeMs > request.inFlightUntilMs) this.#end("final");',
    replace: 'if (Date.now() > request.inFlightUntilMs) this.#end("final");',
  },
  {
    name: "gone after a lost answer is called gone",
    rule: "8",
    file: release,
    find: "return this.#ambiguous && performance",
    replace: "return false && performance",
  },
  {
    name: "a foreign key is deleted",
    rule: "release",
    file: "src/stores/redis/scripts/release.ts",
    find: "elseif string.sub(held, 1, 36) == ARGV[i] then",
    replace: "elseif held then",
  },
];
