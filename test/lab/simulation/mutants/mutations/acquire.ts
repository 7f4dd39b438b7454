import type { Mutation } from "../workshop.ts";

export const acquireMutations: readonly Mutation[] = [
  // Rules 1 to 4: how an attempt asks for a lock, and how the lock is taken.
  {
    name: "the owner id of the last try is used again",
    rule: "1",
    in: "command",
    find: "ownerId: uuid()",
    replace: "ownerId: ((this as any).used ??= {})[key] ??= uuid()",
  },
  {
    name: "a waiting try uses the owner id of the try before",
    rule: "1",
    in: "withLock",
    find: "await waitForLease(",
    replace: "((this as any).id = crypto.randomUUID()) && await waitForLease(",
    also: {
      in: "command",
      find: "ownerId: uuid()",
      replace: "ownerId: (this as any).id ?? uuid()",
    },
  },
  {
    name: "each copy has an owner id of its own",
    rule: "1",
    in: "Acquiring",
    find: "const command = this.#command;",
    replace: `const ownerId = this.#command.ownerId.slice(0, 32) + (1_000 + this.#copies);
    const command = { ...this.#command, ownerId };`,
  },
  {
    name: "a copy has no deadline",
    rule: "2, acquire",
    in: "acquire",
    find: "left >= 0 and",
    replace: "",
  },
  {
    name: "a copy is never too early",
    rule: "2, acquire",
    in: "acquire",
    find: "left <= tonumber(ARGV[2])",
    replace: "true",
  },
  {
    name: "an answer after the budget is taken",
    rule: "3",
    in: "answered",
    find: "now >= this.#endsAt",
    replace: "false",
  },
  {
    name: "a refused copy is not written again",
    rule: "3",
    in: "noVerdict",
    find: "this.#wasOutOfWindow = true;",
    replace: "this.#unavailable(); return;",
  },
  {
    name: "silence is not confirmed",
    rule: "4",
    in: "onDue",
    find: "this.#send(now)",
    replace: "this.#runtime.timers.set(this, this.#endsAt)",
  },
  {
    name: "a lost answer is called unavailable",
    rule: "4",
    in: "noVerdict",
    find: "this.#lostAReply = true;",
    replace: "this.#unavailable(); return;",
  },
  {
    name: "a confirm lengthens the life",
    rule: "acquire",
    in: "acquire",
    find: "return -tonumber(",
    replace: "redis.call('PEXPIRE', key, ARGV[4]) return -tonumber(",
  },
  {
    name: "a taken key is taken over",
    rule: "acquire",
    in: "acquire",
    find: "reply = redis.pcall('PTTL', key)",
    replace: `if in_time then
    redis.call('DEL', key)
    redis.call('SET', key, value, 'PX', ARGV[4], 'NX')
    wrote = true
    return -1
  end
  reply = redis.pcall('PTTL', key)`,
  },
  {
    name: "a life that a clock has lengthened stays",
    rule: "18, acquire",
    in: "acquire",
    find: "reply < 0 or reply > most",
    replace: "false",
  },
  {
    name: "whoever is refused gives the lock its life again",
    rule: "18, acquire",
    in: "acquire",
    find: "reply < 0 or reply > most",
    replace: "true",
  },
  {
    name: "a foreign key with an expiry is given another",
    rule: "acquire",
    in: "acquire",
    find: "and reply < 0",
    replace: "",
  },

  // Rule 18: an attempt that was refused, and a look-up, leave nothing behind.
  {
    name: "a completed attempt is not retired",
    isRare: true,
    rule: "5, 18",
    in: "end",
    find: "isHeld ||",
    replace: 'attempt.outcome === "completed" ? false : isHeld ||',
  },
  {
    name: "a mismatched attempt is not retired",
    isRare: true,
    rule: "5, 18",
    in: "end",
    find: "isHeld ||",
    replace: 'attempt.outcome === "mismatched" ? false : isHeld ||',
  },
  {
    name: "a look-up takes what is free",
    rule: "18",
    in: "lookUpCommand",
    find: ", deadlineMs: 0",
    replace: "",
  },
];
