import type { Mutation } from "../mutation.ts";

/** Rule 19: a cooldown, by whom it is left and for how long. */
export const cooldownMutations: readonly Mutation[] = [
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
];
