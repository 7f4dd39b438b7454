import type { Mutation } from "../workshop.ts";

/** The line that decides whether an owner id is retired when its attempt has ended. */
export const retiredWhen = "if (isHeld || this.#inFlight.first !== undefined) {";

export const leaseMutations: readonly Mutation[] = [
  // Rules 5, 6 and 8: who has to let go of a lock, for how long, and what its release says.
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

  // Rule 19: a cooldown, by whom it is left and for how long.
  {
    name: "a cooldown is only written over the lock",
    rule: "16, release",
    in: "letGo",
    find: "if reply and reply.ok then\n",
    replace: "if failed(reply) then\n      return reply\n    else\n",
  },
  {
    name: "a cooldown is written behind the deletion",
    rule: "16, release",
    find: "local reply = redis.pcall('SET', key, cooldown, 'PX', life, 'XX')",
    replace: "local reply = false",
  },
  {
    name: "a cooldown lasts for as long as Redis' clock was set back",
    rule: "19, release",
    find: "math.min(left, ",
    replace: "math.min(left, left or ",
  },
  {
    name: "a retire sets the cooldown once more",
    rule: "19",
    find: "    this.#cooldownUntilMs = 0;\n",
    replace: "",
  },
  {
    name: "each copy of a release has a cooldown of its own",
    rule: "19",
    find: "latestDeadlineMs,\n      cooldownUntilMs: this.#cooldownUntilMs,",
    replace:
      "latestDeadlineMs,\n      cooldownUntilMs: this.#cooldownUntilMs && this.#cooldownUntilMs + Math.round(performance.now() - this.startedAt),",
  },
  {
    name: "each copy of a complete has a cooldown of its own",
    rule: "19",
    find: "this.#expiresAtMs,\n      cooldownUntilMs: this.#cooldownUntilMs,",
    replace:
      "this.#expiresAtMs,\n      cooldownUntilMs: this.#cooldownUntilMs && this.#cooldownUntilMs + Math.round(performance.now() - this.startedAt),",
  },
  {
    name: "a lease that was lost leaves a cooldown",
    rule: "19",
    find: "isLost ? 0 : cooldownMs,",
    replace: "cooldownMs,",
  },
  {
    name: "a cooldown of one's own is called foreign",
    rule: "8, 19, release",
    find: "elseif ends > 0 and held == 'cooldown:' .. owner_id then\n    reply = 1",
    replace: "",
  },

  // Rule 19: a person who frees, and the tombstone in the place of the lease.
  {
    name: "free deletes",
    rule: "19, free",
    find: "if ARGV[5] == '1' or not (lease or freed) then",
    replace: "if true then",
  },
  {
    name: "a tombstone without the owner id",
    rule: "19, free",
    find: "'freed:' .. lease .. ':'",
    replace: "'freed:' .. string.rep('0', 36) .. ':'",
  },
  {
    name: "free does not compare",
    rule: "19, free",
    find: "if string.sub(named, 1, string.len(id)) ~= id then\n  return { now, -1 }\nend\n",
    replace: "",
  },
  {
    name: "a tombstone has a life of its own",
    rule: "19, free",
    find: "if left < 0 then\n",
    replace: "if lease or left < 0 then\n",
  },
  {
    name: "a tombstone keeps a life that a clock has lengthened",
    isRare: true,
    rule: "18, free",
    find: "elseif most and left > most then\n",
    replace: "elseif false then\n",
  },
  {
    name: "the first write of a free needs memory",
    isRare: true,
    rule: "16, free",
    find: "local reply = redis.pcall('PEXPIRE', key, string.format('%.0f', left))",
    replace: "local reply = 1",
  },
  {
    name: "a release deletes its tombstone",
    rule: "19, release",
    find: "elseif ends > 0 and held",
    replace: `elseif string.sub(held, 1, 43) == 'freed:' .. owner_id .. ':' then
    redis.pcall('DEL', key)
    reply = -2
  elseif ends > 0 and held`,
  },
  {
    name: "a lease that is freed is not lost",
    rule: "7, 19",
    find: 'this.#end("freed");',
    replace: "void 0;",
  },
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
