import type { Mutation } from "../mutation.ts";

/** Rule 19: a cooldown, by whom it is left and for how long. */
export const cooldownMutations: readonly Mutation[] = [
  {
    name: "a cooldown overwrites the lock",
    rule: "16, release",
    find: `    reply = redis.pcall('DEL', key)
    if not failed(reply) then
      wrote = true
      if left > 0 then
        redis.pcall('SET', key, 'cooldown:' .. owner_id, 'PX', string.format('%.0f', left))
      end
    end`,
    replace: `    if left > 0 then
      reply = redis.pcall('SET', key, 'cooldown:' .. owner_id, 'PX', string.format('%.0f', left))
      if not failed(reply) then
        wrote = true
        reply = 1
      end
    else
      reply = redis.pcall('DEL', key)
    end`,
  },
  {
    name: "each copy of a release has a cooldown of its own",
    rule: "19",
    find: "this.#inFlight.latestDeadlineMs, this.cooldownUntilMs);",
    replace:
      "this.#inFlight.latestDeadlineMs, this.cooldownUntilMs && this.cooldownUntilMs + Math.round(now - this.startedAt));",
  },
  {
    name: "each copy of a complete has a cooldown of its own",
    rule: "19",
    find: "return this.#completing.plan.cooldownUntilMs;",
    replace: `const { plan, startedAt } = this.#completing;
    return plan.cooldownUntilMs && plan.cooldownUntilMs + Math.round(performance.now() - startedAt);`,
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
    find: "elseif held == 'cooldown:' .. owner_id then\n    reply = 1\n",
    replace: "",
  },
];
