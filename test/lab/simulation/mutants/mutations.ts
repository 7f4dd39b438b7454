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
 * - nothing that is retired after a complete: for as long as a late copy may take effect it finds the
 *   record, because of rule 11, and takes nothing;
 * - a retire that sets the cooldown once more: it is absolute, and until then the key is taken by the
 *   first one;
 * - a second connection that re-sends: `maxRetriesPerRequest: 0` has settled its commands before.
 *
 * Too rare for these schedules (not met by 50 000 of them), and held by tests on a real Redis:
 * - another's tombstone that is taken for one's own, and a lease that was freed and is retired at the
 *   end of its handler only (test/redis/rule-19-freed.test.ts);
 * - another's record that is looked at before the expiry (test/redis/rule-15-late.test.ts);
 * - a complete that is given up and deletes its lock (test/redis/rule-14-close.test.ts).
 */

const acquire = "src/lock/acquire.ts";
const acknowledged = "src/stores/redis/acknowledged.ts";
const startAttempt = "src/lock/start-attempt.ts";
const complete = "src/lock/complete.ts";
const userLease = "src/lock/lease.ts";
const acquireScripts = "src/stores/redis/scripts/acquire.ts";
const extendScript = "src/stores/redis/scripts/extend.ts";
const freeScript = "src/stores/redis/scripts/free.ts";
const releaseScripts = "src/stores/redis/scripts/release.ts";
const completeScript = "src/stores/redis/scripts/complete.ts";
const recordScripts = "src/stores/redis/scripts/record.ts";
const twoSteps = "src/stores/redis/two-steps.ts";
const timerWheel = "src/timer-wheel.ts";
const lease = "src/lock/held-lease.ts";
const validity = "src/lock/validity.ts";
const connection = "src/stores/redis/connection.ts";
const batch = "src/stores/redis/batch.ts";
const release = "src/lock/release.ts";
const submitLock = "src/lock/submit-lock.ts";

export const mutations: readonly Mutation[] = [
  {
    name: "the owner id of the last try is used again",
    rule: "1",
    file: submitLock,
    find: "ownerId: uuid(),",
    replace: "ownerId: idOf(this, key),",
    also: {
      find: "/** What runs under the lock. */",
      replace: `const ids = new WeakMap<object, Map<string, string>>();
function idOf(lock: object, key: string): string {
  const own = ids.get(lock) ?? new Map();
  ids.set(lock, own);
  if (!own.has(key)) own.set(key, uuid());
  return own.get(key);
}
/** What runs under the lock. */`,
    },
  },
  {
    name: "a waiting try uses the owner id of the try before",
    rule: "1",
    file: submitLock,
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
    file: acquire,
    find: `get command(): LockCommand {
    return this.#acquiring.command;
  }`,
    replace: `readonly #nth = ++nth;
  get command(): LockCommand {
    const { command } = this.#acquiring;
    return { ...command, ownerId: command.ownerId.slice(0, 32) + String(1_000 + this.#nth).slice(-4) };
  }`,
    also: {
      find: "class Request implements",
      replace: "let nth = 0;\nclass Request implements",
    },
  },
  {
    name: "the lease counts from the answer",
    rule: "1, 7",
    file: startAttempt,
    find: "return new HeldLease(runtime, command, acquisition);",
    replace:
      "return new HeldLease(runtime, command, { ...acquisition, startedAt: performance.now() });",
  },
  {
    name: "a copy has no deadline",
    rule: "2, acquire",
    file: acquireScripts,
    find: "local in_time = left >= 0 and left <= tonumber(ARGV[2])",
    replace: "local in_time = left <= tonumber(ARGV[2])",
  },
  {
    name: "a copy is never too early",
    rule: "2, acquire",
    file: acquireScripts,
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
    name: "a script that the server has forgotten is asked for by its digest for ever",
    rule: "2",
    file: "src/stores/redis/loaded-scripts.ts",
    find: "this.#ofNode.get(node)?.delete(script);",
    replace: "",
  },
  {
    name: "a script that the server has forgotten is sent again to whom it was asked for",
    rule: "9",
    file: batch,
    find: 'if (result.kind === "not-loaded") this.#sendAgain(call);',
    replace: 'if (result.kind === "not-loaded") this.#send({ connection, node }, call);',
  },
  {
    name: "an answer after the budget is taken",
    rule: "3",
    file: acquire,
    find: "if (now < this.#endsAt) {\n      this.confirmed",
    replace: "if (now > 0) {\n      this.confirmed",
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
    file: startAttempt,
    find: 'if (outcome === "acquired" || mayHold) release',
    replace: 'void mayHold; if (outcome === "acquired") release',
  },
  {
    name: "a contended attempt with open copies is not retired",
    rule: "5",
    file: startAttempt,
    find: 'if (outcome === "acquired" || mayHold) release',
    replace: 'if (outcome === "acquired" || (outcome !== "contended" && mayHold)) release',
  },
  {
    name: "a lease forgets its open copies",
    rule: "5",
    file: startAttempt,
    find: "return new HeldLease(runtime, command, acquisition);",
    replace:
      "return new HeldLease(runtime, command, { ...acquisition, inFlight: new InFlight() });",
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
    find: "// Without an answer the timer is set for the next try.",
    replace: "default:\n        this.#validity.extendAnswered(sentAt);",
  },
  {
    name: "gone does not make a lease lost",
    rule: "7",
    file: lease,
    find: 'this.#end("overtaken");',
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
    file: "src/lock/runtime.ts",
    find: 'for (const lease of watchdogs.armed()) lease.lose("closed");',
    replace: "void watchdogs;",
  },
  {
    name: "a foreign key is extended as if it were ours",
    rule: "extend",
    file: extendScript,
    find: "elseif string.sub(held, 1, 36) == ARGV[1 + i] then",
    replace: "elseif held then",
  },
  {
    name: "a foreign key is deleted",
    rule: "release",
    file: releaseScripts,
    find: "elseif string.sub(held, 1, 36) == ARGV[i] then",
    replace: "elseif held then",
  },
  {
    name: "a confirm lengthens the life",
    rule: "acquire",
    file: acquireScripts,
    find: "if string.sub(held, 1, 36) == owner_id then\n",
    replace:
      "if string.sub(held, 1, 36) == owner_id then\n    redis.call('PEXPIRE', key, ARGV[4])\n",
  },
  {
    name: "a taken key is taken over",
    rule: "acquire",
    file: acquireScripts,
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
    name: "a foreign key with an expiry is given another",
    rule: "acquire",
    file: acquireScripts,
    find: "if not failed(reply) and reply < 0 then",
    replace: "if not failed(reply) then",
  },
  {
    name: "each copy of a complete has an expiry of its own",
    rule: "15",
    file: complete,
    find: "return this.#completing.plan.expiresAtMs;",
    replace:
      "return this.#completing.plan.expiresAtMs + Math.round(performance.now() - this.#completing.startedAt);",
  },
  {
    name: "the last writer of a record wins",
    rule: "15, complete",
    file: completeScript,
    find: "elseif kept then\n    reply = -2\n",
    replace: "",
  },
  {
    name: "another's record is taken for one's own",
    rule: "15, complete",
    file: completeScript,
    find: "elseif kept then\n    reply = -2\n",
    replace: "elseif kept then\n    reply = 2\n",
  },
  {
    name: "a complete needs the lock",
    rule: "16, complete",
    file: completeScript,
    find: "elseif kept then\n    reply = -2\n",
    replace: "elseif kept then\n    reply = -2\n  elseif not mine then\n    reply = 0\n",
  },
  {
    name: "a complete deletes the lock first",
    rule: "16, complete",
    file: completeScript,
    find: "  local reply\n  if odd(kept) then",
    replace: "  local reply\n  if mine then redis.pcall('DEL', key) end\n  if odd(kept) then",
  },
  {
    name: "a complete deletes the lock where it could not write the record",
    rule: "16, complete",
    file: completeScript,
    find: "if mine and not failed(reply) then",
    replace: "if mine then",
  },
  {
    name: "the first write of a complete needs memory",
    rule: "16, complete",
    file: completeScript,
    find: "    redis.pcall('DEL', record)\n",
    replace: "",
  },
  {
    name: "the first write of half a complete needs memory",
    rule: "16, record",
    file: recordScripts,
    find: "    redis.pcall('DEL', record)\n",
    replace: "",
  },
  {
    name: "a cooldown overwrites the lock",
    rule: "16, release",
    file: releaseScripts,
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
    name: "the lock is looked at before the record",
    rule: "16, acquire",
    file: acquireScripts,
    find: "local kept = redis.pcall('GET', KEYS[2 * i])\n",
    replace: `local locked = acquire_once(KEYS[2 * i - 1], owner_id, submission, fingerprint)
  local kept = redis.pcall('GET', KEYS[2 * i])
  if locked == -1 then
    kept = false
  end
`,
  },
  {
    name: "the lock is taken before the record is found",
    rule: "16, 18, acquire",
    file: acquireScripts,
    find: "local kept = redis.pcall('GET', KEYS[2 * i])\n",
    replace: `acquire_once(KEYS[2 * i - 1], owner_id, submission, fingerprint)
  local kept = redis.pcall('GET', KEYS[2 * i])
`,
  },
  {
    name: "a confirm does not look at the record",
    rule: "16, acquire",
    file: acquireScripts,
    find: "local kept = redis.pcall('GET', KEYS[2 * i])\n",
    replace: `local kept = redis.pcall('GET', KEYS[2 * i])
  local own = redis.pcall('GET', KEYS[2 * i - 1])
  if type(own) == 'string' and string.sub(own, 1, 36) == owner_id then
    kept = false
  end
`,
  },
  {
    name: "in two steps, what the look finds does not count",
    rule: "16",
    file: twoSteps,
    find: "return { ...found, isHeld: true };",
    replace: "return locked;",
  },
  {
    name: "in two steps, what was taken before the look is not given back",
    rule: "5, 16",
    file: twoSteps,
    find: "return { ...found, isHeld: true };",
    replace: "return found;",
  },
  {
    name: "in two steps, the look comes before the lock",
    rule: "16",
    file: twoSteps,
    find: "const step = new AcquirePart(request, (locked) => this.#look(request, locked));",
    replace: `const lock = (found: LookReply) => {
      const answer = (locked: AcquireReply) => {
        const isTaken = locked.kind === "taken" || locked.kind === "mine";
        request.answer(isTaken ? ifTaken(locked, found) : ifNot(request, locked, found));
      };
      this.#steps.acquire(new AcquirePart(request, answer));
    };
    if (!request.onlyLooks) {
      this.#steps.look({ command: request.command, deadlineMs: undefined, answer: lock });
      return true;
    }
    const step = new AcquirePart(request, (locked) => this.#look(request, locked));`,
  },
  {
    name: "in two steps, the release comes before the record",
    rule: "16",
    file: twoSteps,
    find: "this.#steps.record({ command, deadlineMs: undefined, record, expiresAtMs, answer });",
    replace: `const { cooldownUntilMs } = request;
    const released = () =>
      this.#steps.record({ command, deadlineMs: undefined, record, expiresAtMs, answer });
    this.#steps.release({ command, deadlineMs: undefined, cooldownUntilMs, answer: released });`,
  },
  {
    name: "a retire runs beside the complete",
    rule: "17",
    file: complete,
    find: "  completing.send(completing.startedAt);",
    replace:
      "  if (!inFlight.isEmpty) release(runtime, command, inFlight, 0);\n  completing.send(completing.startedAt);",
    also: {
      find: "if (!this.#inFlight.isEmpty) release(this.#runtime, this.command, this.#inFlight, 0);",
      replace: "",
    },
  },
  {
    name: "a complete is not sent again",
    rule: "17",
    file: complete,
    find: "else if (this.#mayBeSent(now)) this.send(now);",
    replace: "else if (this.#mayBeSent(now) && now < 0) this.send(now);",
  },
  {
    name: "an extend that meets one's own complete is a loss",
    rule: "17",
    file: lease,
    find: "if (this.#isReleased) this.#unwatch();\n    else this.lose(reason);",
    replace: "this.#isReleased = false;\n    this.lose(reason);",
  },
  {
    name: "a complete after a release is sent",
    rule: "17",
    file: userLease,
    find: "if (this.#released === undefined) this.#complete(answer, cooldownMs);",
    replace: "if (this.#completed === undefined) this.#complete(answer, cooldownMs);",
  },
  {
    name: "a release after a complete is sent",
    rule: "17",
    file: userLease,
    find: "if (this.#completed === undefined) this.#release(cooldownMs);",
    replace: "if (cooldownMs >= 0) this.#release(cooldownMs);",
  },
  {
    name: "a completed attempt is not retired",
    rule: "5, 18",
    file: startAttempt,
    find: 'if (outcome === "acquired" || mayHold) release',
    replace: 'if (outcome === "acquired" || (outcome !== "completed" && mayHold)) release',
  },
  {
    name: "a mismatched attempt is not retired",
    rule: "5, 18",
    file: startAttempt,
    find: 'if (outcome === "acquired" || mayHold) release',
    replace: 'if (outcome === "acquired" || (outcome !== "mismatched" && mayHold)) release',
  },
  {
    name: "a look-up takes what is free",
    rule: "18",
    file: "src/stores/redis/commands.ts",
    find: "acquireOnceCommand.head({ ...settings, deadlineMs: 0 })",
    replace: "acquireOnceCommand.head(settings)",
  },
  {
    name: "each copy of a release has a cooldown of its own",
    rule: "19",
    file: release,
    find: "this.#inFlight.latestDeadlineMs, this.cooldownUntilMs);",
    replace:
      "this.#inFlight.latestDeadlineMs, this.cooldownUntilMs && this.cooldownUntilMs + Math.round(now - this.startedAt));",
  },
  {
    name: "each copy of a complete has a cooldown of its own",
    rule: "19",
    file: complete,
    find: "return this.#completing.plan.cooldownUntilMs;",
    replace: `const { plan, startedAt } = this.#completing;
    return plan.cooldownUntilMs && plan.cooldownUntilMs + Math.round(performance.now() - startedAt);`,
  },
  {
    name: "a complete is reported when it is next sent, and not at the end of its time",
    rule: "17",
    file: complete,
    find: "isReported ? dueAt : Math.min(dueAt, reportAt)",
    replace: "dueAt",
  },
  {
    name: "a lease that was lost leaves a cooldown",
    rule: "19",
    file: lease,
    find: "isLost ? 0 : cooldownMs,",
    replace: "cooldownMs,",
  },
  {
    name: "a cooldown of one's own is called foreign",
    rule: "8, 19, release",
    file: releaseScripts,
    find: "elseif held == 'cooldown:' .. owner_id then\n    reply = 1\n",
    replace: "",
  },
  {
    name: "free deletes",
    rule: "19, free",
    file: freeScript,
    find: "if ARGV[5] == '1' or not (lease or freed) then",
    replace: "if true then",
  },
  {
    name: "a tombstone without the owner id",
    rule: "19, free",
    file: freeScript,
    find: "'freed:' .. lease .. ':'",
    replace: "'freed:' .. string.rep('0', 36) .. ':'",
  },
  {
    name: "free does not compare",
    rule: "19, free",
    file: freeScript,
    find: "if string.sub(named, 1, string.len(id)) ~= id then\n  return { now, -1 }\nend\n",
    replace: "",
  },
  {
    name: "a tombstone has a life of its own",
    rule: "19, free",
    file: freeScript,
    find: "if left < 0 or lease then\n  if left < 0 then",
    replace: "if left < 0 or lease then\n  if lease or left < 0 then",
  },
  {
    name: "the first write of a free needs memory",
    rule: "16, free",
    file: freeScript,
    find: "local reply = redis.pcall('PEXPIRE', key, string.format('%.0f', left))",
    replace: "local reply = 1",
  },
  {
    name: "a release deletes its tombstone",
    rule: "19, release",
    file: releaseScripts,
    find: `  elseif string.sub(held, 1, 43) == 'freed:' .. ARGV[i] .. ':' then
    reply = -2
`,
    replace: `  elseif string.sub(held, 1, 43) == 'freed:' .. ARGV[i] .. ':' then
    redis.pcall('DEL', key)
    reply = -2
`,
  },
  {
    name: "a lease that is freed is not lost",
    rule: "7, 19",
    file: lease,
    find: 'this.#end("freed");',
    replace: "",
  },
  {
    name: "tokens have no floor",
    rule: "20, acquire",
    file: acquireScripts,
    find: "token = floor_us + 1",
    replace: "token = token + 0",
  },
  {
    name: "a process forgets the tokens that it has heard",
    rule: "20",
    file: "src/stores/redis/redis-clock.ts",
    find: "if (microseconds > this.floorUs(node)) this.#floorsUs.set(node, microseconds);",
    replace: "void node; void microseconds;",
  },
  {
    name: "a confirm gets a new token",
    rule: "20, acquire",
    file: acquireScripts,
    find: "return -tonumber(string.sub(held, 38, string.find(held, ':', 38, true) - 1))",
    replace: "return -token",
  },
  {
    name: "too few replicas are enough",
    rule: "21",
    file: "src/stores/redis/wait-round.ts",
    find: "if (came >= replicas) return undefined;",
    replace: "if (came >= replicas - 1) return undefined;",
  },
  {
    name: "a replica is waited for by a touch that writes nothing",
    rule: "21, touch",
    file: "src/stores/redis/scripts/touch.ts",
    find: "reply = redis.pcall('PEXPIRE', key, math.max(reply, 1))",
    replace: "reply = 1",
  },
  {
    name: "no replica is waited for by an acquire that has taken the lock",
    rule: "21",
    file: acknowledged,
    find: 'if (reply.kind !== "taken" && reply.kind !== "mine") {',
    replace: 'if (reply.kind !== "mine") {',
  },
  {
    name: "no replica is waited for by a confirm that finds its own lock",
    rule: "21",
    file: acknowledged,
    find: 'if (reply.kind !== "taken" && reply.kind !== "mine") {',
    replace: 'if (reply.kind !== "taken") {',
  },
  {
    name: "no replica is waited for by a complete",
    rule: "21",
    file: acknowledged,
    find: 'if (reply.kind !== "recorded" && reply.kind !== "late") {',
    replace: "if (command !== undefined) {",
  },
];
