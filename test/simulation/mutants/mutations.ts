/** One rule of the protocol, broken by a change of the text. */
export interface Mutation {
  readonly name: string;
  /** The place in src/lock/PROTOCOL.md: the number of the rule, or the script. */
  readonly rule: string;
  readonly file: string;
  /** Has to be there exactly once: a patch that no longer applies proves nothing. */
  readonly find: string;
  readonly replace: string;
  /** What has to be changed besides, in the same file. */
  readonly also?: { readonly find: string; readonly replace: string };
}

/*
 * Not in the list, because nothing can notice them:
 * - an extend that may shorten: every extend of one owner id gives the same life, counted from its
 *   execution, so a later execution never gives less than an earlier one;
 * - a second connection that re-sends: `maxRetriesPerRequest: 0` has settled its commands before.
 */

const acquisition = "src/lock/acquisition.ts";
const lease = "src/lock/lease.ts";
const life = "src/lock/lease-life.ts";
const lane = "src/stores/redis/lane.ts";
const retirement = "src/lock/retirement.ts";
const scripts = "src/stores/redis/scripts.ts";
const submitLock = "src/lock/submit-lock.ts";

export const mutations: readonly Mutation[] = [
  {
    name: "the owner id of the last try is used again",
    rule: "1",
    file: submitLock,
    find: "const command: LockCommand = { key, ownerId: uuid(), times: this.#keeper.times };",
    replace:
      "const ids = ((this as any).ids ??= new Map()); if (!ids.has(key)) ids.set(key, uuid());\n    const command: LockCommand = { key, ownerId: ids.get(key), times: this.#keeper.times };",
  },
  {
    name: "a waiting try uses the owner id of the try before",
    rule: "1",
    file: submitLock,
    find: `for (let round = 0; ; round++) {
      // A fresh owner id each time: one that was given up is never used again.
      const attempt = await this.#attempt(key);`,
    replace: `const id = uuid();
    for (let round = 0; ; round++) {
      const attempt = await (this as any).attempt(key, id);`,
    also: {
      find: `async #attempt(key: string): Promise<Attempt> {
    if (this.#closed !== undefined) return closed();
    const command: LockCommand = { key, ownerId: uuid(), times: this.#keeper.times };`,
      replace: `async #attempt(key: string) { return await this.attempt(key, uuid()); }
  async attempt(key: string, id: string): Promise<Attempt> {
    if (this.#closed !== undefined) return closed();
    const command: LockCommand = { key, ownerId: id, times: this.#keeper.times };`,
    },
  },
  {
    name: "each copy has an owner id of its own",
    rule: "1",
    file: acquisition,
    find: "const copy = this.#store.acquire(this.#command);",
    replace:
      "const copy = this.#store.acquire({ ...this.#command, ownerId: this.#command.ownerId + this.#copies });",
  },
  {
    name: "the lease counts from the answer",
    rule: "1, 7",
    file: submitLock,
    find: "const lease = new HeldLease(this.#keeper, command, startedAt, openCopies);",
    replace: "const lease = new HeldLease(this.#keeper, command, performance.now(), openCopies);",
  },
  {
    name: "a copy has no deadline",
    rule: "2, acquire",
    file: scripts,
    find: "local in_time = left >= 0 and left <= tonumber(ARGV[2])",
    replace: "local in_time = left <= tonumber(ARGV[2])",
  },
  {
    name: "a copy is never too early",
    rule: "2, acquire",
    file: scripts,
    find: "local in_time = left >= 0 and left <= tonumber(ARGV[2])",
    replace: "local in_time = left >= 0",
  },
  {
    name: "a close tells nobody, and what is answered later counts as clean",
    rule: "2",
    file: lane,
    find: `for (const call of this.#unanswered.takeAll()) {
      call.tell?.({ kind: "closed" });
      call.tell = undefined;
    }`,
    replace: "this.#unanswered.takeAll();",
  },
  {
    name: "an answer after the budget is taken",
    rule: "3",
    file: acquisition,
    find: `if (performance.now() >= this.#endsAt) this.#end("unavailable", { mayHold: true });
    else this.#end("acquired"`,
    replace: `this.#end("acquired"`,
  },
  {
    name: "a refused copy is not written again",
    rule: "3",
    file: acquisition,
    find: "this.#sendAgain(!this.#wasRefused);",
    replace: 'this.#end("unavailable");',
  },
  {
    name: "silence is not confirmed",
    rule: "4",
    file: acquisition,
    find: "else this.send();\n  }\n\n  #answered",
    replace: "else this.#wakeAt(this.#endsAt);\n  }\n\n  #answered",
  },
  {
    name: "a lost answer is called unavailable",
    rule: "4",
    file: acquisition,
    find: "this.#sendAgain(!this.#lostAnAnswer);",
    replace: 'this.#end("unavailable");',
  },
  {
    name: "an unavailable attempt is not retired",
    rule: "5",
    file: submitLock,
    find: 'if (outcome === "acquired" || acquisition.mayHold) {',
    replace: 'if (outcome === "acquired") {',
  },
  {
    name: "a contended attempt with open copies is not retired",
    rule: "5",
    file: submitLock,
    find: 'if (outcome === "acquired" || acquisition.mayHold) {',
    replace: 'if (outcome !== "contended" && (outcome === "acquired" || acquisition.mayHold)) {',
  },
  {
    name: "a lease forgets its open copies",
    rule: "5",
    file: submitLock,
    find: "const lease = new HeldLease(this.#keeper, command, startedAt, openCopies);",
    replace: "const lease = new HeldLease(this.#keeper, command, startedAt, []);",
  },
  {
    name: "a retire is final at its first answer",
    rule: "6",
    file: retirement,
    find: 'if (reply.storeTimeMs > openUntil) this.#end(retirement, "final");',
    replace: 'void openUntil; this.#end(retirement, "final");',
  },
  {
    name: "a retire asks only once",
    rule: "6",
    file: retirement,
    find: `} else if (retirement.waiting === undefined) {
        if (now >= retirement.notBefore) this.#try(retirement);
      } else`,
    replace: "} else",
  },
  {
    name: "a retire goes by this process' own clock",
    rule: "6, 12",
    file: retirement,
    find: 'if (reply.storeTimeMs > openUntil) this.#end(retirement, "final");',
    replace: 'if (Date.now() > openUntil) this.#end(retirement, "final");',
  },
  {
    name: "no margin for clocks that drift",
    rule: "7",
    file: life,
    find: "return 0.99 * ttlMs - 2;",
    replace: "return ttlMs;",
  },
  {
    name: "an extend counts from its answer",
    rule: "7",
    file: life,
    find: "Math.max(this.validUntil, sentAt + reliableMs(ttlMs))",
    replace: "Math.max(this.validUntil, performance.now() + reliableMs(ttlMs))",
  },
  {
    name: "an extend counts without an answer",
    rule: "7",
    file: lease,
    find: 'case "unknown":\n      case "unsent":',
    replace:
      'case "unknown":\n        this.#life.extendAnswered(sentAt);\n        return;\n      case "unsent":',
  },
  {
    name: "gone does not make a lease lost",
    rule: "7",
    file: lease,
    find: 'this.lose("overtaken");',
    replace: "this.#schedule();",
  },
  {
    name: "the end of a lease is not signalled",
    rule: "7",
    file: lease,
    find: 'this.lose(this.#life.mayBeExtended ? "expired" : "max-hold");',
    replace: "",
  },
  {
    name: "the watchdog never extends",
    rule: "7",
    file: lease,
    find: "now >= this.#life.extendAt) this.#extend();",
    replace: "now < 0) this.#extend();",
  },
  {
    name: "gone after a lost answer is called gone",
    rule: "8",
    file: retirement,
    find: "const ourOwnDoing = retirement.ambiguous || !clean;",
    replace: "const ourOwnDoing = !clean;",
  },
  {
    name: "a silent connection gets more",
    rule: "9",
    file: "src/stores/redis/unanswered.ts",
    find: "return oldest !== undefined && performance.now() - oldest.sentAt >= silenceMs;",
    replace: "void oldest; void silenceMs; return false;",
  },
  {
    name: "a time-out of the client is taken for a sign of life",
    rule: "9",
    file: lane,
    find: "if (isServerError(error)) this.#unanswered.answered(call);",
    replace: "void isServerError; this.#unanswered.answered(call);",
  },
  {
    name: "commands are written before the connection is ready",
    rule: "9",
    file: lane,
    find: 'if (this.client.status !== "ready") return false;',
    replace: "",
  },
  {
    name: "no timer of our own ends an attempt",
    rule: "10",
    file: acquisition,
    find: 'if (now >= this.#endsAt) this.#end("unavailable");\n    else if',
    replace: "if",
  },
  {
    name: "a release waits for its answer for ever",
    rule: "10",
    file: retirement,
    find: 'if (age > this.#times.acquireTimeoutMs) this.#settle(retirement, "unconfirmed");',
    replace: "",
  },
  {
    name: "an attempt overlooks an answer that lies ready",
    rule: "10",
    file: acquisition,
    find: "setImmediate(() => this.#awake());",
    replace: "this.#awake();",
  },
  {
    name: "a lease overlooks an answer that lies ready",
    rule: "10",
    file: lease,
    find: "() => setImmediate(() => this.#awake()),",
    replace: "() => this.#awake(),",
  },
  {
    name: "a retire overlooks an answer that lies ready",
    rule: "10",
    file: retirement,
    find: "setInterval(() => setImmediate(() => this.#tick()), everyMs)",
    replace: "setInterval(() => this.#tick(), everyMs)",
  },
  {
    name: "the clock learns nothing",
    rule: "12",
    file: "src/stores/redis/redis-clock.ts",
    find: "this.#offset = Math.min(Math.max(this.#offset, lowest), highest);",
    replace: "void lowest; void highest;",
  },
  {
    name: "close does not end leases",
    rule: "14",
    file: submitLock,
    find: 'for (const lease of live) lease.lose("closed");',
    replace: "void live;",
  },
  {
    name: "a foreign key is extended as if it were ours",
    rule: "extend",
    file: scripts,
    find: "elseif held == ARGV[2 * i - 1] then",
    replace: "elseif held then",
  },
  {
    name: "a foreign key is deleted",
    rule: "release",
    file: scripts,
    find: "elseif held == ARGV[i] then",
    replace: "elseif held then",
  },
  {
    name: "a confirm lengthens the life",
    rule: "acquire",
    file: scripts,
    find: "reply = -2\n",
    replace: "reply = -2\n    redis.call('PEXPIRE', key, ARGV[3 + 2 * i])\n",
  },
  {
    name: "a taken key is taken over",
    rule: "acquire",
    file: scripts,
    find: "elseif held then\n    reply = redis.pcall('PTTL', key)",
    replace: "elseif held and not in_time then\n    reply = redis.pcall('PTTL', key)",
  },
  {
    name: "a foreign key with an expiry is given another",
    rule: "acquire",
    file: scripts,
    find: "if not failed(reply) and reply < 0 then",
    replace: "if not failed(reply) then",
  },
];
