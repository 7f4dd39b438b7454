/** One rule of the protocol, broken by a change of the text. */
export interface Mutation {
  readonly name: string;
  /** The place in docs/internals/protocol.md: the number of the rule, or the script. */
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

const acquire = "src/lock/acquire.ts";
const timerWheel = "src/timer-wheel.ts";
const lease = "src/lock/held-lease.ts";
const validity = "src/lock/validity.ts";
const connection = "src/stores/redis/connection.ts";
const release = "src/lock/release.ts";
const scripts = "src/stores/redis/scripts.ts";
const submitLock = "src/lock/submit-lock.ts";

export const mutations: readonly Mutation[] = [
  {
    name: "the owner id of the last try is used again",
    rule: "1",
    file: submitLock,
    find: "return { key, ownerId: uuid(), times",
    replace:
      "const ids = ((this as any).ids ??= new Map()); if (!ids.has(key)) ids.set(key, uuid());\n    return { key, ownerId: ids.get(key), times",
  },
  {
    name: "a waiting try uses the owner id of the try before",
    rule: "1",
    file: submitLock,
    find: `for (let round = 0; ; round++) {
      const attempt`,
    replace: `(this as any).id = uuid();
    for (let round = 0; ; round++) {
      const attempt`,
    also: {
      find: "return { key, ownerId: uuid(), times",
      replace: "return { key, ownerId: (this as any).id ?? uuid(), times",
    },
  },
  {
    name: "each copy has an owner id of its own",
    rule: "1",
    file: acquire,
    find: `get command(): LockCommand {
    return this.#acquiring.command;
  }`,
    replace: `readonly #nth = ++nth;
  get command(): LockCommand {
    const { command } = this.#acquiring;
    return { ...command, ownerId: command.ownerId + this.#nth };
  }`,
    also: {
      find: "class AcquireRequest implements",
      replace: "let nth = 0;\nclass AcquireRequest implements",
    },
  },
  {
    name: "the lease counts from the answer",
    rule: "1, 7",
    file: submitLock,
    find: "return new HeldLease(this.#runtime, command, startedAt, inFlight);",
    replace:
      "void startedAt; return new HeldLease(this.#runtime, command, performance.now(), inFlight);",
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
    file: connection,
    find: 'for (const call of calls) tellOnce(call, { kind: "closed" });',
    replace: "void calls;",
  },
  {
    name: "an answer after the budget is taken",
    rule: "3",
    file: acquire,
    find: "if (performance.now() < this.#endsAt) {\n      this.confirmed",
    replace: "if (performance.now() > 0) {\n      this.confirmed",
  },
  {
    name: "a refused copy is not written again",
    rule: "3",
    file: acquire,
    find: "this.#wasOutOfWindow = true;\n        this.#sendAgain(isFirst);",
    replace: 'void isFirst; this.#end("unavailable");',
  },
  {
    name: "silence is not confirmed",
    rule: "4",
    file: acquire,
    find: "else this.send(now);\n  }\n\n  answered",
    replace: "else this.#setTimer(this.#endsAt);\n  }\n\n  answered",
  },
  {
    name: "a lost answer is called unavailable",
    rule: "4",
    file: acquire,
    find: "this.#lostAReply = true;\n        this.#sendAgain(isFirst);",
    replace: 'void isFirst; this.#end("unavailable");',
  },
  {
    name: "an unavailable attempt is not retired",
    rule: "5",
    file: submitLock,
    find: 'if (outcome === "acquired" || mayHold) release',
    replace: 'void mayHold; if (outcome === "acquired") release',
  },
  {
    name: "a contended attempt with open copies is not retired",
    rule: "5",
    file: submitLock,
    find: 'if (outcome === "acquired" || mayHold) release',
    replace: 'if (outcome === "acquired" || (outcome !== "contended" && mayHold)) release',
  },
  {
    name: "a lease forgets its open copies",
    rule: "5",
    file: submitLock,
    find: "return new HeldLease(this.#runtime, command, startedAt, inFlight);",
    replace: "return new HeldLease(this.#runtime, command, startedAt, new InFlight());",
    also: {
      find: "import { HeldLease,",
      replace: 'import { InFlight } from "./in-flight.ts";\nimport { HeldLease,',
    },
  },
  {
    name: "a retire is final at its first answer",
    rule: "6",
    file: release,
    find: 'if (reply.storeTimeMs > request.inFlightUntilMs) this.#end("final");',
    replace: 'this.#end("final");',
  },
  {
    name: "a retire asks only once",
    rule: "6",
    file: release,
    find: "if (now >= this.#notBefore) this.send(now);\n      else this.#setTimer(now);",
    replace: "this.#setTimer(now);",
  },
  {
    name: "a retire goes by this process' own clock",
    rule: "6, 12",
    file: release,
    find: 'if (reply.storeTimeMs > request.inFlightUntilMs) this.#end("final");',
    replace: 'if (Date.now() > request.inFlightUntilMs) this.#end("final");',
  },
  {
    name: "no margin for clocks that drift",
    rule: "7",
    file: validity,
    find: "return 0.99 * ttlMs - 2;",
    replace: "return ttlMs;",
  },
  {
    name: "an extend counts from its answer",
    rule: "7",
    file: validity,
    find: "Math.max(this.validUntil, sentAt + reliableMs(ttlMs))",
    replace: "Math.max(this.validUntil, performance.now() + reliableMs(ttlMs))",
  },
  {
    name: "an extend counts without an answer",
    rule: "7",
    file: lease,
    find: "default:\n        // The timer is set",
    replace:
      'case "unknown":\n        this.#validity.extendAnswered(sentAt);\n        return;\n      default:\n        // The timer is set',
  },
  {
    name: "gone does not make a lease lost",
    rule: "7",
    file: lease,
    find: 'this.lose("overtaken");',
    replace: "this.#setTimer();",
  },
  {
    name: "the end of a lease is not signalled",
    rule: "7",
    file: lease,
    find: 'this.lose(this.#validity.mayBeExtended ? "expired" : "max-hold");',
    replace: "",
  },
  {
    name: "the watchdog never extends",
    rule: "7",
    file: lease,
    find: "now >= this.#validity.extendAt) this.#extend(now);",
    replace: "now < 0) this.#extend(now);",
  },
  {
    name: "gone after a lost answer is called gone",
    rule: "8",
    file: release,
    find: "return this.#ambiguous && performance",
    replace: "return false && performance",
  },
  {
    name: "a silent connection gets more",
    rule: "9",
    file: connection,
    find: "return oldest === undefined || performance.now() - oldest.sentAt < silenceMs;",
    replace: "void oldest; void silenceMs; return true;",
  },
  {
    name: "a time-out of the client is taken for a sign of life",
    rule: "9",
    file: connection,
    find: "if (isServerError(error)) this.#answered(call);",
    replace: "void isServerError; this.#answered(call);",
  },
  {
    name: "commands are written before the connection is ready",
    rule: "9",
    file: connection,
    find: 'if (this.client.status !== "ready") return false;',
    replace: "",
  },
  {
    name: "no timer of our own ends an attempt",
    rule: "10",
    file: acquire,
    find: 'if (now >= this.#endsAt) this.#end("unavailable");\n    // Rule 4',
    replace: 'if (now < 0) this.#end("unavailable");\n    // Rule 4',
  },
  {
    name: "a release waits for its answer for ever",
    rule: "10",
    file: release,
    find: 'if (ageMs >= acquireTimeoutMs) this.#report("unconfirmed");',
    replace: "",
  },
  {
    name: "a timer overlooks an answer that lies ready",
    rule: "10",
    file: timerWheel,
    find: "setImmediate(this.#fire, Math.floor(performance.now() / this.#stepMs));",
    replace: "this.#fire(Math.floor(performance.now() / this.#stepMs));",
  },
  {
    name: "what is set for later is forgotten when something rings",
    rule: "10",
    file: timerWheel,
    find: "this.#armNext();\n    }",
    replace: "}",
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
    find: 'for (const lease of watchdogs.armed()) lease.lose("closed");',
    replace: "void watchdogs;",
  },
  {
    name: "a foreign key is extended as if it were ours",
    rule: "extend",
    file: scripts,
    find: "if held == ARGV[1 + i] then",
    replace: "if held then",
  },
  {
    name: "a foreign key is deleted",
    rule: "release",
    file: scripts,
    find: "if held == ARGV[i] then",
    replace: "if held then",
  },
  {
    name: "a confirm lengthens the life",
    rule: "acquire",
    file: scripts,
    find: "reply = -2\n",
    replace: "reply = -2\n      redis.call('PEXPIRE', key, ARGV[4])\n",
  },
  {
    name: "a taken key is taken over",
    rule: "acquire",
    file: scripts,
    find: "    elseif held then\n      reply = redis.pcall('PTTL', key)",
    replace:
      "    elseif held and in_time then\n      redis.call('DEL', key)\n      redis.call('SET', key, owner_id, 'PX', ARGV[4], 'NX')\n      wrote = true\n      reply = -1\n    elseif held then\n      reply = redis.pcall('PTTL', key)",
  },
  {
    name: "a foreign key with an expiry is given another",
    rule: "acquire",
    file: scripts,
    find: "if not failed(reply) and reply < 0 then",
    replace: "if not failed(reply) then",
  },
];
