import type { Mutation } from "../mutation.ts";

/** Rule 19: a person who frees, and the tombstone in the place of the lease. */
export const freedMutations: readonly Mutation[] = [
  {
    name: "free deletes",
    rule: "19, free",
    find: "if ARGV[5] == '1' or not (lease or freed) then",
    replace: "if true then",
  },
  {
    name: "a tombstone without the owner id",
    rule: "19, free",
    find: "'freed:' .. lease .. ':'",
    replace: "'freed:' .. string.rep('0', 36) .. ':'",
  },
  {
    name: "free does not compare",
    rule: "19, free",
    find: "if string.sub(named, 1, string.len(id)) ~= id then\n  return { now, -1 }\nend\n",
    replace: "",
  },
  {
    name: "a tombstone has a life of its own",
    rule: "19, free",
    find: "if left < 0 then\n",
    replace: "if lease or left < 0 then\n",
  },
  {
    name: "a tombstone keeps a life that a clock has lengthened",
    isRare: true,
    rule: "18, free",
    find: "elseif most and left > most then\n",
    replace: "elseif false then\n",
  },
  {
    name: "the first write of a free needs memory",
    isRare: true,
    rule: "16, free",
    find: "local reply = redis.pcall('PEXPIRE', key, string.format('%.0f', left))",
    replace: "local reply = 1",
  },
  {
    name: "a release deletes its tombstone",
    rule: "19, release",
    find: "elseif ends > 0 and held",
    replace: `elseif string.sub(held, 1, 43) == 'freed:' .. owner_id .. ':' then
    redis.pcall('DEL', key)
    reply = -2
  elseif ends > 0 and held`,
  },
  {
    name: "a lease that is freed is not lost",
    rule: "7, 19",
    find: 'this.#end("freed");',
    replace: "void 0;",
  },
];
