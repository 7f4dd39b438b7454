import type { Mutation } from "../mutation.ts";

/** Rules 15 and 17: one record of a submission, and a complete that is sent until it is answered. */
export const onceMutations: readonly Mutation[] = [
  {
    name: "each copy of a complete has an expiry of its own",
    rule: "15",
    find: "return this.#completing.plan.expiresAtMs;",
    replace:
      "return this.#completing.plan.expiresAtMs + Math.round(performance.now() - this.#completing.startedAt);",
  },
  {
    name: "the last writer of a record wins",
    rule: "15, complete",
    find: "elseif kept then\n    return -2\n",
    replace: "",
  },
  {
    name: "another's record is taken for one's own",
    rule: "15, complete",
    find: "elseif kept then\n    return -2\n",
    replace: "elseif kept then\n    return 2\n",
  },
  {
    name: "a retire runs beside the complete",
    rule: "17",
    find: "  completing.send(completing.startedAt);",
    replace:
      "  if (!inFlight.isEmpty) release(runtime, command, inFlight, 0);\n  completing.send(completing.startedAt);",
    also: {
      find: "if (!this.#inFlight.isEmpty) release(this.runtime, this.command, this.#inFlight, 0);",
      replace: "",
    },
  },
  {
    name: "a complete is not sent again",
    rule: "17",
    find: "this.isAmbiguous ||= isSilent;\n      this.send(now);",
    replace:
      'this.isAmbiguous ||= isSilent;\n      if (this.#method === "complete") this.#setTimer(now);\n      else this.send(now);',
  },
  {
    name: "an extend that meets one's own complete is a loss",
    rule: "17",
    find: "if (this.#isReleased) this.#unwatch();\n    else this.lose(reason);",
    replace: "this.#isReleased = false;\n    this.lose(reason);",
  },
  {
    name: "a complete after a release is sent",
    rule: "17",
    find: "if (this.#released === undefined) this.#complete(answer, cooldownMs);",
    replace: "if (this.#completed === undefined) this.#complete(answer, cooldownMs);",
  },
  {
    name: "a release after a complete is sent",
    rule: "17",
    find: "if (this.#completed === undefined) this.#release(cooldownMs);",
    replace: "if (cooldownMs >= 0) this.#release(cooldownMs);",
  },
  {
    name: "a complete is reported when it is next sent, and not at the end of its time",
    rule: "17",
    find: "this.#onReport === undefined ? dueAt : Math.min(dueAt, reportAt)",
    replace:
      'this.#onReport === undefined || this.#method === "complete" ? dueAt : Math.min(dueAt, reportAt)',
  },
];
