import type { Mutation } from "../mutation.ts";

/** Rules 15 and 17: one record of a submission, and a complete that is sent until it is answered. */
export const onceMutations: readonly Mutation[] = [
  {
    name: "each copy of a complete has an expiry of its own",
    rule: "15",
    find: "expiresAtMs: this.#expiresAtMs,",
    replace: "expiresAtMs: this.#expiresAtMs + Math.round(performance.now() - this.startedAt),",
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
    find: "this.runtime.pendingRecordLength += this.#record.length;",
    replace:
      "const early = this.#inFlight;\n    if (early.first) new Releasing(this.runtime, this.command, early).begin();\n    this.runtime.pendingRecordLength += this.#record.length;",
    also: {
      find: "if (inFlight.first !== undefined) new Releasing(this.runtime, this.command, inFlight).begin();",
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
    find: 'this.#completed ??= this.#released?.then(() => "unconfirmed");',
    replace: "",
  },
  {
    name: "a release after a complete is sent",
    rule: "17",
    find: "this.#released ??= this.#completed?.then(asReleased);",
    replace: "void asReleased;",
  },
  {
    name: "a complete is reported when it is next sent, and not at the end of its time",
    rule: "17",
    find: "this.#onReport === undefined ? dueAt : Math.min(dueAt, reportAt)",
    replace:
      'this.#onReport === undefined || this.#method === "complete" ? dueAt : Math.min(dueAt, reportAt)',
  },
];
