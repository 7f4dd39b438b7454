import type { Mutation } from "../workshop.ts";

export const connectionMutations: readonly Mutation[] = [
  // Rules 2, 9 and 22: what is written on which connection, and when it counts as in flight.
  {
    name: "a close tells nobody, and what is answered later counts as clean",
    rule: "2",
    find: 'call.tell?.({ kind: "closed" });\n      call.tell = undefined;',
    replace: "void call;",
  },
  {
    name: "a script that the server has forgotten is asked for by its digest for ever",
    rule: "2",
    find: "this.#digests.get(node)?.delete(script);",
    replace: "",
  },
  {
    name: "a script that the server has forgotten is sent again to whom it was asked for",
    isRare: true,
    rule: "9",
    find: 'if (result.kind === "not-loaded") this.#write(requests);',
    replace: 'if (result.kind === "not-loaded") this.#send(requests, route);',
  },
  {
    name: "a gathered call declares the key of its first entry",
    rule: "23",
    find: "connection.send(node, gatheredScript, [], [...args, keys.length], answered, own);",
    replace:
      "connection.send(node, gatheredScript, keys.slice(0, 1), [...args, keys.length], answered);",
  },
  {
    name: "what a node has refused is given up",
    rule: "23",
    find: "this.#sendAlone(request, route);",
    replace: 'request.answer({ kind: "rejected", cause: code, misconfigured: false } as never);',
  },
  {
    name: "a refused entry fails its neighbours",
    rule: "23",
    find: 'script.replace(failsTheCall, "")',
    replace: "script",
  },
  {
    name: "what was refused has a new deadline",
    isRare: true,
    rule: "2, 23",
    find: "const deadlineMs = first ?? clock.now() + command.times.acquireTimeoutMs;",
    replace: "const deadlineMs = clock.now() + command.times.acquireTimeoutMs; void first;",
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
    find: 'if (result.kind === "value" || isServerError(result.error)) {',
    replace:
      'if (result.kind === "value" || isServerError(result.error) || result.kind === "error") {',
  },
  {
    name: "commands are written before the connection is ready",
    rule: "9",
    find: "if (!this.client.isReady(slot) || this.#database?.isDone === false) return false;",
    replace: "if (this.#database?.isDone === false) return false;",
  },
  {
    name: "the database is not proved",
    rule: "22",
    find: "isReady(slot) || this.#database?.isDone === false) return false;",
    replace: "isReady(slot)) return false;",
  },
  {
    name: "the database that was proved on the last connection counts on the next",
    rule: "22",
    find: "this.#proved = undefined;",
    replace: "",
    // Either of the two tells a new connection.
    also: { find: "&& this.#proved.connection === connection", replace: "" },
  },
  {
    name: "the database while a connection is made anew is that of the options",
    rule: "22",
    find: "prevCondition?.select ?? condition?.select",
    replace: "(void prevCondition, condition?.select)",
  },

  // Rule 21: what counts only when replicas have confirmed it.
  {
    name: "too few replicas are enough",
    rule: "21",
    find: "if (came >= replicas) return undefined;",
    replace: "if (came >= replicas - 1) return undefined;",
  },
  {
    name: "a replica is waited for by a touch that writes nothing",
    rule: "21, touch",
    find: "reply = redis.pcall('PEXPIRE', key, math.max(reply, 1))",
    replace: "reply = 1",
  },
  {
    name: "no replica is waited for by an acquire that has taken the lock",
    rule: "21",
    find: 'const isLock = kind === "taken" || kind === "mine";',
    replace: 'const isLock = kind === "mine";',
  },
  {
    name: "no replica is waited for by a confirm that finds its own lock",
    rule: "21",
    find: 'const isLock = kind === "taken" || kind === "mine";',
    replace: 'const isLock = kind === "taken";',
  },
  {
    name: "no replica is waited for by a complete",
    rule: "21",
    find: 'const isRecord = kind === "recorded" || kind === "late";',
    replace: "const isRecord = false;",
  },
];
