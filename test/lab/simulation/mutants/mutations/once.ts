import type { Mutation } from "../workshop.ts";

export const onceMutations: readonly Mutation[] = [
  // Rules 15 and 17: one record of a submission, and a complete that is sent until it is answered.
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

  // Rule 20: fencing tokens rise from lease to lease.
  {
    name: "tokens have no floor",
    rule: "20, acquire",
    find: "token = floor_us + 1",
    replace: "token = token + 0",
  },
  {
    name: "a process forgets the tokens that it has heard",
    rule: "20",
    find: "if (microseconds > floorUs) this.#floorsUs.set(node, microseconds);",
    replace: "void node; void microseconds;",
  },
  {
    name: "a confirm gets a new token",
    rule: "20, acquire",
    find: "return -tonumber(string.sub(held, 38, string.find(held, ':', 38, true) - 1))",
    replace: "return -token",
  },

  // Rule 16: at every moment there is the lock or the record, in one script and in two steps.
  {
    name: "a complete needs the lock",
    rule: "16, complete",
    in: "completeScript",
    find: "reply = keep(",
    replace: "reply = not mine and 0 or keep(",
  },
  {
    name: "a complete deletes the lock first",
    rule: "16, complete",
    in: "completeScript",
    find: "local reply = held\n",
    replace: "if mine then redis.pcall('DEL', key) end\n  local reply = held\n",
  },
  {
    name: "a complete deletes the lock where it could not write the record",
    rule: "16, complete",
    find: "if mine and not failed(reply) then",
    replace: "if mine then",
  },
  {
    name: "the first write of a complete needs memory",
    rule: "16, complete",
    find: "  redis.pcall('DEL', record)\n",
    replace: "",
  },
  {
    name: "the lock is looked at before the record",
    rule: "16, acquire",
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
    find: "local kept = redis.pcall('GET', KEYS[2 * i])\n",
    replace: `acquire_once(KEYS[2 * i - 1], owner_id, submission, fingerprint)
  local kept = redis.pcall('GET', KEYS[2 * i])
`,
  },
  {
    name: "a confirm does not look at the record",
    isRare: true,
    rule: "16, acquire",
    find: "local kept = redis.pcall('GET', KEYS[2 * i])\n",
    replace: `local kept = redis.pcall('GET', KEYS[2 * i])
  local own = redis.pcall('GET', KEYS[2 * i - 1])
  if type(own) == 'string' and string.sub(own, 1, 36) == owner_id then
    kept = false
  end
`,
  },
  {
    name: "in two steps, the release comes before the record",
    rule: "16",
    find: "this.#batchOf(recordCommand).add({ ...unstamped, record, expiresAtMs, answer });",
    replace: `const released = () =>
      this.#batchOf(recordCommand).add({
        command,
        deadlineMs: undefined,
        record,
        expiresAtMs,
        answer: (reply) => request.answer(reply),
      });
    void answer;
    this.release({ command, deadlineMs: undefined, cooldownUntilMs, answer: released });`,
  },
];
