import type { Mutation } from "../mutation.ts";

/** Rule 16: at every moment there is the lock or the record, in one script and in two steps. */
export const noGapMutations: readonly Mutation[] = [
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
