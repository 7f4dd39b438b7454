import type { Mutation } from "../workshop.ts";
import { retiredWhen } from "./lease.ts";

export const acquireMutations: readonly Mutation[] = [
  // Rules 1 to 4: how an attempt asks for a lock, and how the lock is taken.
  {
    name: "the owner id of the last try is used again",
    rule: "1",
    find: "ownerId: uuid(),",
    replace: "ownerId: idOf(this, key),",
    also: {
      find: "/** The work under the lock. */",
      replace: `const ids = new WeakMap<object, Map<string, string>>();
function idOf(lock: object, key: string): string {
  const own = ids.get(lock) ?? new Map();
  ids.set(lock, own);
  if (!own.has(key)) own.set(key, uuid());
  return own.get(key);
}
/** The work under the lock. */`,
    },
  },
  {
    name: "a waiting try uses the owner id of the try before",
    rule: "1",
    find: "const lease = await waitForLease(",
    replace: "(this as any).id = uuid();\n    const lease = await waitForLease(",
    also: {
      find: "ownerId: uuid(),",
      replace: "ownerId: (this as any).id ?? uuid(),",
    },
  },
  {
    name: "each copy has an owner id of its own",
    rule: "1",
    find: "const command = this.#command;",
    replace: `const ownerId = this.#command.ownerId.slice(0, 32) + String(1_000 + ++nth).slice(-4);
    const command = { ...this.#command, ownerId };`,
    also: {
      find: "export class Acquiring extends Timer",
      replace: "let nth = 0;\nexport class Acquiring extends Timer",
    },
  },
  {
    name: "a copy has no deadline",
    rule: "2, acquire",
    find: "local in_time = left >= 0 and left <= tonumber(ARGV[2])",
    replace: "local in_time = left <= tonumber(ARGV[2])",
  },
  {
    name: "a copy is never too early",
    rule: "2, acquire",
    find: "local in_time = left >= 0 and left <= tonumber(ARGV[2])",
    replace: "local in_time = left >= 0",
  },
  {
    name: "an answer after the budget is taken",
    rule: "3",
    find: "if (now >= this.#endsAt) {",
    replace: "if (now < 0) {",
  },
  {
    name: "a refused copy is not written again",
    rule: "3",
    find: "this.#wasOutOfWindow = true;",
    replace: "this.#unavailable();\n      return;",
  },
  {
    name: "silence is not confirmed",
    rule: "4",
    find: "else this.#send(now);\n  }\n\n  #answered",
    replace: "else this.#runtime.timers.set(this, this.#endsAt);\n  }\n\n  #answered",
  },
  {
    name: "a lost answer is called unavailable",
    rule: "4",
    find: "this.#lostAReply = true;",
    replace: "this.#unavailable();\n      return;",
  },
  {
    name: "a confirm lengthens the life",
    rule: "acquire",
    in: "acquire",
    find: "if string.sub(held, 1, 36) == owner_id then\n",
    replace:
      "if string.sub(held, 1, 36) == owner_id then\n    redis.call('PEXPIRE', key, ARGV[4])\n",
  },
  {
    name: "a taken key is taken over",
    rule: "acquire",
    in: "acquire",
    find: "  reply = redis.pcall('PTTL', key)\n",
    replace: `  if in_time then
    redis.call('DEL', key)
    redis.call('SET', key, value, 'PX', ARGV[4], 'NX')
    wrote = true
    return -1
  end
  reply = redis.pcall('PTTL', key)
`,
  },
  {
    name: "a life that a clock has lengthened stays",
    rule: "18, acquire",
    find: "if most and not failed(reply) and (reply < 0 or reply > most) then",
    replace: "if false then",
  },
  {
    name: "whoever is refused gives the lock its life again",
    rule: "18, acquire",
    find: "if most and not failed(reply) and (reply < 0 or reply > most) then",
    replace: "if most and not failed(reply) then",
  },
  {
    name: "a foreign key with an expiry is given another",
    rule: "acquire",
    find: "if not failed(reply) and reply < 0 then",
    replace: "if not failed(reply) then",
  },

  // Rule 18: an attempt that was refused, and a look-up, leave nothing behind.
  {
    name: "a completed attempt is not retired",
    isRare: true,
    rule: "5, 18",
    find: retiredWhen,
    replace: `if (settled.outcome === "completed") void 0; else ${retiredWhen}`,
  },
  {
    name: "a mismatched attempt is not retired",
    isRare: true,
    rule: "5, 18",
    find: retiredWhen,
    replace: `if (settled.outcome === "mismatched") void 0; else ${retiredWhen}`,
  },
  {
    name: "a look-up takes what is free",
    rule: "18",
    find: "head({ ...settings, deadlineMs: 0 })",
    replace: "head(settings)",
  },
];
