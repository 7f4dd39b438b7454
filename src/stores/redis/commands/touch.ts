import { common, endOfEntry, sent } from "./command.ts";

/**
 * Rule 21: checks that each owner id's lock or record is there, and sets the rest of one key's life
 * again. Replicas have their master's writes in order, so one write is enough for all.
 *
 * KEYS: the lock or the record of each entry.
 * ARGV: the owner id of each entry.
 *
 * Returns the clock, then for each entry:
 *   1 it is there, also on each replica that has the last write of this script
 *   0 something else is there, or nothing, or (before the write) a key without an expiry
 */
export const touchScript: string = sent(/* lua */ `
${common}
local replies = { now }
for i, key in ipairs(KEYS) do
  local owner_id = ARGV[i]
  local reply = 0
  local held = redis.pcall('GET', key)
  if failed(held) then
    if not odd(held) then
      reply = held
    end
  -- A lock begins with its owner id, and a record has it behind its fingerprint.
  elseif held and (string.sub(held, 1, 36) == owner_id or string.sub(held, 24, 59) == owner_id) then
    reply = 1
    if not wrote then
      reply = redis.pcall('PTTL', key)
      if reply == -1 then
        reply = 0
      elseif not failed(reply) then
        -- Needs no memory, so a full Redis takes it. 0 would delete the key.
        reply = redis.pcall('PEXPIRE', key, math.max(reply, 1))
        wrote = not failed(reply)
      end
    end
  end
${endOfEntry(1)}
end
return replies
`);
