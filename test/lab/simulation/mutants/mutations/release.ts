import { type Mutation, retiredWhen } from "../mutation.ts";

/** Rules 5, 6 and 8: who has to let go of a lock, for how long, and what its release says. */
export const releaseMutations: readonly Mutation[] = [
  {
    name: "an unavailable attempt is not retired",
    rule: "5",
    find: retiredWhen,
    replace: "void isHeld; if (false) {",
  },
  {
    name: "a contended attempt with open copies is not retired",
    rule: "5",
    find: retiredWhen,
    replace: `if (settled.outcome === "contended") void 0; else ${retiredWhen}`,
  },
  {
    name: "a lease forgets its open copies",
    rule: "5",
    find: "this.#command,\n      inFlight,",
    replace: "this.#command,\n      new InFlight(),",
  },
  {
    name: "a retire is final at its first answer",
    rule: "6",
    find: 'if (reply.storeTimeMs > request.inFlightUntilMs) this.end("final");',
    replace: 'this.end("final");',
  },
  {
    name: "a retire asks only once",
    rule: "6",
    find: "this.isAmbiguous ||= isSilent;\n      this.send(now);",
    replace:
      'if (!isSilent && this.#method === "release") {\n        this.#setTimer(now);\n        return;\n      }\n      this.isAmbiguous ||= isSilent;\n      this.send(now);',
  },
  {
    name: "a retire goes by this process' own clock",
    rule: "6, 12",
    find: 'if (reply.storeTimeMs > request.inFlightUntilMs) this.end("final");',
    replace: 'if (Date.now() > request.inFlightUntilMs) this.end("final");',
  },
  {
    name: "gone after a lost answer is called gone",
    rule: "8",
    find: "this.isAmbiguous && performance",
    replace: "false && performance",
  },
  {
    name: "a foreign key is deleted",
    rule: "release",
    in: "releaseScript",
    find: "local owner_id = ARGV[2 * i - 1]",
    replace: `local seen = redis.pcall('GET', key)
  local owner_id = type(seen) == 'string' and string.sub(seen, 1, 36) or ARGV[2 * i - 1]`,
  },
];
