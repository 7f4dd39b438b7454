import type { Mutation } from "../workshop.ts";

export const leaseMutations: readonly Mutation[] = [
  // Rules 5, 6 and 8: who has to let go of a lock, for how long, and what its release says.
  {
    name: "an unavailable attempt is not retired",
    rule: "5",
    in: "end",
    find: "isHeld ||",
    replace: "false &&",
  },
  {
    name: "a contended attempt with open copies is not retired",
    rule: "5",
    in: "end",
    find: "isHeld ||",
    replace: 'attempt.outcome === "contended" ? false : isHeld ||',
  },
  {
    name: "a lease forgets its open copies",
    rule: "5",
    in: "answered",
    find: "inFlight,",
    replace: "new InFlight(),",
  },
  {
    name: "a retire is final at its first answer",
    rule: "6",
    in: "executed",
    find: "reply.storeTimeMs > request.inFlightUntilMs",
    replace: "true",
  },
  {
    name: "a retire asks only once",
    rule: "6",
    in: "onDue",
    find: "this.isAmbiguous ||= isSilent;",
    replace: `if (!isSilent && this.#method === "release") {
        this.#setTimer(now);
        return;
      }
      this.isAmbiguous ||= isSilent;`,
  },
  {
    name: "a retire goes by this process' own clock",
    rule: "6, 12",
    in: "executed",
    find: "reply.storeTimeMs",
    replace: "Date.now()",
  },
  {
    name: "gone after a lost answer is called gone",
    rule: "8",
    in: "executed",
    find: "this.isAmbiguous &&",
    replace: "false &&",
  },
  {
    name: "a foreign key is deleted",
    rule: "release",
    in: "releaseScript",
    find: "local owner_id = ARGV[2 * i - 1]",
    replace: `local seen = redis.pcall('GET', key)
  local owner_id = type(seen) == 'string' and string.sub(seen, 1, 36) or ARGV[2 * i - 1]`,
  },

  // Rule 19: a cooldown, by whom it is left and for how long.
  {
    name: "a cooldown is only written over the lock",
    rule: "16, release",
    in: "let_go",
    find: "if reply and reply.ok then",
    replace: "if failed(reply) then return reply else",
  },
  {
    name: "a cooldown is written behind the deletion",
    rule: "16, release",
    in: "let_go",
    find: "redis.pcall('SET', key, cooldown, 'PX', life, 'XX')",
    replace: "false",
  },
  {
    name: "a cooldown lasts for as long as Redis' clock was set back",
    rule: "19, release",
    in: "let_go",
    find: "math.min(left,",
    replace: "math.min(left, left or",
  },
  {
    name: "a retire sets the cooldown once more",
    rule: "19",
    in: "executed",
    find: "this.#cooldownUntilMs = 0;",
    replace: "",
  },
  {
    name: "each copy of a release has a cooldown of its own",
    rule: "19",
    in: "Releasing",
    find: "cooldownUntilMs: this.#cooldownUntilMs",
    replace:
      "cooldownUntilMs: this.#cooldownUntilMs && this.#cooldownUntilMs + Math.round(performance.now() - this.startedAt)",
  },
  {
    name: "each copy of a complete has a cooldown of its own",
    rule: "19",
    in: "Completing",
    find: "cooldownUntilMs: this.#cooldownUntilMs",
    replace:
      "cooldownUntilMs: this.#cooldownUntilMs && this.#cooldownUntilMs + Math.round(performance.now() - this.startedAt)",
  },
  {
    name: "a lease that was lost leaves a cooldown",
    rule: "19",
    in: "complete",
    find: "isLost ? 0 :",
    replace: "",
  },
  {
    name: "a cooldown of one's own is called foreign",
    rule: "8, 19, release",
    in: "releaseScript",
    find: "ends > 0 and held",
    replace: "false and held",
  },

  // Rule 19: a person who frees, and the tombstone in the place of the lease.
  {
    name: "free deletes",
    rule: "19, free",
    in: "freeScript",
    find: "ARGV[5] == '1' or not (lease or freed)",
    replace: "true",
  },
  {
    name: "a tombstone without the owner id",
    rule: "19, free",
    in: "freeScript",
    find: "'freed:' .. lease",
    replace: "'freed:' .. string.rep('0', 36)",
  },
  {
    name: "free does not compare",
    rule: "19, free",
    in: "freeScript",
    find: "string.sub(named, 1, string.len(id)) ~= id",
    replace: "false",
  },
  {
    name: "a tombstone has a life of its own",
    rule: "19, free",
    in: "freeScript",
    find: "left < 0",
    replace: "lease or left < 0",
  },
  {
    name: "a tombstone keeps a life that a clock has lengthened",
    isRare: true,
    rule: "18, free",
    in: "freeScript",
    find: "most and left > most",
    replace: "false",
  },
  {
    name: "the first write of a free needs memory",
    isRare: true,
    rule: "16, free",
    in: "freeScript",
    find: "redis.pcall('PEXPIRE', key, string.format('%.0f', left))",
    replace: "1",
  },
  {
    name: "a release deletes its tombstone",
    rule: "19, release",
    in: "releaseScript",
    find: "elseif ends > 0",
    replace: `elseif string.sub(held, 1, 43) == 'freed:' .. owner_id .. ':' then
    redis.pcall('DEL', key)
    reply = -2
  elseif ends > 0`,
  },
  {
    name: "a lease that is freed is not lost",
    rule: "7, 19",
    in: "extended",
    find: 'this.#end("freed")',
    replace: "void 0",
  },
  // Rules 7 and 14: for how long a lease is valid, and how its holder hears of its end.
  {
    name: "the lease counts from the answer",
    rule: "1, 7",
    in: "answered",
    find: "this.#startedAt",
    replace: "performance.now()",
  },
  {
    name: "no margin for clocks that drift",
    rule: "7",
    in: "renewed",
    find: "0.99 * ttlMs - 2",
    replace: "ttlMs",
  },
  {
    name: "an extend counts from its answer",
    rule: "7",
    in: "extended",
    find: "renewed(sentAt)",
    replace: "renewed(performance.now())",
  },
  {
    name: "an extend counts without an answer",
    rule: "7",
    in: "extended",
    find: 'if (kind !== "done") return;',
    replace: "",
  },
  {
    name: "gone does not make a lease lost",
    rule: "7",
    in: "extended",
    find: 'this.#end("overtaken")',
    replace: "this.#setTimer()",
  },
  {
    name: "the end of a lease is not signalled",
    rule: "7",
    in: "onDue",
    find: 'this.#end(extendAt < Number.POSITIVE_INFINITY ? "expired" : "max-hold")',
    replace: "void 0",
  },
  {
    name: "the watchdog never extends",
    rule: "7",
    in: "onDue",
    find: "now >= extendAt",
    replace: "false",
  },
  {
    name: "close does not end leases",
    rule: "14",
    in: "drain",
    find: 'lease.lose("closed")',
    replace: "void lease",
  },
  {
    name: "a foreign key is extended as if it were ours",
    rule: "extend",
    in: "extendScript",
    find: "local owner_id = ARGV[1 + i]",
    replace: `local seen = redis.pcall('GET', key)
  local owner_id = type(seen) == 'string' and string.sub(seen, 1, 36) or ARGV[1 + i]`,
  },

  // Rules 10 and 12: timers of our own, and the estimate of Redis' clock.
  {
    name: "no timer of our own ends an attempt",
    rule: "10",
    in: "onDue",
    find: "now >= this.#endsAt",
    replace: "false",
  },
  {
    name: "a release waits for its answer for ever",
    rule: "10",
    in: "onDue",
    find: 'this.report("unconfirmed")',
    replace: "void 0",
  },
  {
    name: "a timer overlooks an answer that lies ready",
    rule: "10",
    in: "onTimeout",
    find: "setImmediate(this.#fire,",
    replace: "this.#fire(",
  },
  {
    name: "what is set for later is forgotten when something rings",
    rule: "10",
    in: "fire",
    find: "this.#arm(next)",
    replace: "void next",
  },
  {
    name: "the clock learns nothing",
    rule: "12",
    in: "learn",
    find: "Math.min(Math.max(this.#offset, lowest), highest)",
    replace: "this.#offset",
  },
];
