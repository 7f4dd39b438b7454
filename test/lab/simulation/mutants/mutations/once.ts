import type { Mutation } from "../workshop.ts";

export const onceMutations: readonly Mutation[] = [
  // Rules 15 and 17: one record of a submission, and a complete that is sent until it is answered.
  {
    name: "each copy of a complete has an expiry of its own",
    rule: "15",
    in: "Completing",
    find: "expiresAtMs: this.#expiresAtMs",
    replace: "expiresAtMs: this.#expiresAtMs + Math.round(performance.now() - this.startedAt)",
  },
  {
    name: "the last writer of a record wins",
    rule: "15, complete",
    in: "keep",
    find: "return -2",
    replace: "kept = false",
  },
  {
    name: "another's record is taken for one's own",
    rule: "15, complete",
    in: "keep",
    find: "return -2",
    replace: "return 2",
  },
  {
    name: "a retire runs beside the complete",
    rule: "17",
    in: "begin",
    find: "this.runtime.completes.count++;",
    replace:
      "this.runtime.completes.count++;\n    const early = this.#inFlight;\n    if (early.first) new Releasing(this.runtime, this.command, early).begin();",
    also: { in: "executed", find: "inFlight.first !== undefined", replace: "false" },
  },
  {
    name: "a complete is not sent again",
    rule: "17",
    in: "onDue",
    find: "this.send(now)",
    replace: 'if (this.#method === "complete") this.#setTimer(now);\n      else this.send(now)',
  },
  {
    name: "an extend that meets one's own complete is a loss",
    rule: "17",
    in: "end",
    find: "this.#isReleased",
    replace: "(this.#isReleased = false)",
  },
  {
    name: "a complete after a release is sent",
    rule: "17",
    in: "complete",
    find: 'this.#released?.then(() => "unconfirmed")',
    replace: "undefined",
  },
  {
    name: "a release after a complete is sent",
    rule: "17",
    in: "release",
    find: "this.#completed?.then(asReleased)",
    replace: "undefined",
  },
  {
    name: "a complete is reported when it is next sent, and not at the end of its time",
    rule: "17",
    in: "setTimer",
    find: "this.#onReport === undefined",
    replace: 'this.#onReport === undefined || this.#method === "complete"',
  },

  // Rule 20: fencing tokens rise from lease to lease.
  {
    name: "tokens have no floor",
    rule: "20, acquire",
    in: "acquire",
    find: "floor_us + 1",
    replace: "token",
  },
  {
    name: "a process forgets the tokens that it has heard",
    rule: "20",
    in: "learn",
    find: "this.#floorsUs.set(node, heardUs)",
    replace: "void node",
  },
  {
    name: "a confirm gets a new token",
    rule: "20, acquire",
    in: "acquire",
    find: "tonumber(string.sub(held, 38, string.find(held, ':', 38, true) - 1))",
    replace: "token",
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
    find: "local reply = held",
    replace: "if mine then redis.pcall('DEL', key) end\n  local reply = held",
  },
  {
    name: "a complete deletes the lock where it could not write the record",
    rule: "16, complete",
    in: "completeScript",
    find: "mine and not failed(reply)",
    replace: "mine",
  },
  {
    name: "the first write of a complete needs memory",
    rule: "16, complete",
    in: "keep",
    find: "redis.pcall('DEL', record)",
    replace: "",
  },
  {
    name: "the lock is looked at before the record",
    rule: "16, acquire",
    in: "acquireOnceScript",
    find: "local kept = redis.pcall('GET', KEYS[2 * i])",
    replace: `local locked = acquire_once(KEYS[2 * i - 1], owner_id, submission, fingerprint)
  local kept = redis.pcall('GET', KEYS[2 * i])
  if locked == -1 then
    kept = false
  end`,
  },
  {
    name: "the lock is taken before the record is found",
    rule: "16, 18, acquire",
    in: "acquireOnceScript",
    find: "local kept = redis.pcall('GET', KEYS[2 * i])",
    replace: `acquire_once(KEYS[2 * i - 1], owner_id, submission, fingerprint)
  local kept = redis.pcall('GET', KEYS[2 * i])`,
  },
  {
    name: "a confirm does not look at the record",
    isRare: true,
    rule: "16, acquire",
    in: "acquireOnceScript",
    find: "local kept = redis.pcall('GET', KEYS[2 * i])",
    replace: `local kept = redis.pcall('GET', KEYS[2 * i])
  local own = redis.pcall('GET', KEYS[2 * i - 1])
  if type(own) == 'string' and string.sub(own, 1, 36) == owner_id then
    kept = false
  end`,
  },
  {
    name: "in two steps, the release comes before the record",
    rule: "16",
    in: "completeInSteps",
    find: "this.#batches.record.waiting.push(",
    replace: `((late: any) =>
      this.release({
        command,
        deadlineMs: undefined,
        cooldownUntilMs,
        answer: () =>
          this.#batches.record.waiting.push({ ...late, answer: (reply: any) => request.answer(reply) }),
      }))(`,
  },
];
