import type { Mutation } from "../mutation.ts";

/** Rule 16: at every moment there is the lock or the record, in one script and in two steps. */
export const noGapMutations: readonly Mutation[] = [
  {
    name: "a complete needs the lock",
    rule: "16, complete",
    in: "completeScript",
    find: "elseif kept then\n    reply = -2\n",
    replace: "elseif kept then\n    reply = -2\n  elseif not mine then\n    reply = 0\n",
  },
  {
    name: "a complete deletes the lock first",
    rule: "16, complete",
    in: "completeScript",
    find: "  local reply\n  if odd(kept) then",
    replace: "  local reply\n  if mine then redis.pcall('DEL', key) end\n  if odd(kept) then",
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
    in: "completeScript",
    find: "    redis.pcall('DEL', record)\n",
    replace: "",
  },
  {
    name: "the first write of half a complete needs memory",
    rule: "16, record",
    in: "recordScript",
    find: "    redis.pcall('DEL', record)\n",
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
    name: "in two steps, what the look finds does not count",
    rule: "16",
    find: "return { ...found, isHeld: true };",
    replace: "return locked;",
  },
  {
    name: "in two steps, what was taken before the look is not given back",
    rule: "5, 16",
    find: "return { ...found, isHeld: true };",
    replace: "return found;",
  },
  {
    name: "in two steps, the look comes before the lock",
    rule: "16",
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
    find: "this.#steps.record({ command, deadlineMs: undefined, record, expiresAtMs, answer });",
    replace: `const { cooldownUntilMs } = request;
    const released = () =>
      this.#steps.record({ command, deadlineMs: undefined, record, expiresAtMs, answer });
    this.#steps.release({ command, deadlineMs: undefined, cooldownUntilMs, answer: released });`,
  },
];
