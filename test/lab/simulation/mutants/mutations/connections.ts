import type { Mutation } from "../mutation.ts";

/** Rules 2, 9 and 22: what is written on which connection, and when it counts as in flight. */
export const connectionMutations: readonly Mutation[] = [
  {
    name: "a close tells nobody, and what is answered later counts as clean",
    rule: "2",
    find: 'for (const call of calls) tellOnce(call, { kind: "closed" });',
    replace: "void calls;",
  },
  {
    name: "a script that the server has forgotten is asked for by its digest for ever",
    rule: "2",
    find: "this.#ofNode.get(node)?.delete(script);",
    replace: "",
  },
  {
    name: "a script that the server has forgotten is sent again to whom it was asked for",
    rule: "9",
    find: 'if (result.kind === "not-loaded") this.#sendAgain(call);',
    replace: 'if (result.kind === "not-loaded") this.#send({ connection, node }, call);',
  },
  {
    name: "a silent connection gets more",
    rule: "9",
    find: "return oldest === undefined || performance.now() - oldest.sentAt < silenceMs;",
    replace: "void oldest; void silenceMs; return true;",
  },
  {
    name: "a time-out of the client is taken for a sign of life",
    rule: "9",

    find: "if (isServerError(error)) this.#answered(call);\n        const isNotLoaded",
    replace: "void isServerError; this.#answered(call);\n        const isNotLoaded",
  },
  {
    name: "commands are written before the connection is ready",
    rule: "9",
    find: 'if (this.client.status !== "ready") return false;',
    replace: "",
  },
  {
    name: "the database is not proved",
    rule: "22",
    find: "return this.isInDatabase && this.#answers(slot, silenceMs);",
    replace: "return this.#answers(slot, silenceMs);",
  },
  {
    name: "the database that was proved on the last connection counts on the next",
    rule: "22",
    find: "this.#proved = undefined;",
    replace: "",
  },
  {
    name: "the database while a connection is made anew is that of the options",
    rule: "22",
    find: "prevCondition?.select ?? condition?.select",
    replace: "(void prevCondition, condition?.select)",
  },
];
