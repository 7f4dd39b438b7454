import { common, endOfEntry } from "./common.ts";
import { letGo } from "./release.ts";
import { sent } from "./sent.ts";

/**
 * The record takes the place of the lock.
 *
 * KEYS: for each entry the lock and the record, which are in one slot.
 * ARGV: for each entry the owner id, the record's text, Redis' time in ms at which it expires, and
 *   until which a cooldown lasts (0: none). All are equal in every copy.
 *
 * Returns the clock, then for each entry:
 *   1 recorded, and the lock is gone
 *   2 recorded by an earlier copy
 *   3 recorded, but the lock was not ours any more
 *   0 too late: the record would have expired; nothing was recorded
 *   -2 another owner id has recorded an answer: it ran twice
 *   -4 something that is no record stands where it belongs; nothing was recorded
 */
export const completeScript: string = sent(/* lua */ `
${common}
${letGo}
local replies = { now }
for i = 1, #KEYS / 2 do
  local key = KEYS[2 * i - 1]
  local record = KEYS[2 * i]
  local owner_id = ARGV[4 * i - 3]
  local expires = tonumber(ARGV[4 * i - 1]) - now
  local cooldown = tonumber(ARGV[4 * i]) - now
  local held = redis.pcall('GET', key)
  local kept = redis.pcall('GET', record)
  local mine = type(held) == 'string' and string.sub(held, 1, 36) == owner_id
  local reply
  if odd(kept) then
    reply = -4
  elseif failed(kept) then
    reply = kept
  elseif kept and (string.sub(kept, 1, 1) ~= '1' or string.sub(kept, 60, 60) ~= '{') then
    reply = -4
  -- Rule 15, in this order: its own, then too late, and only then another's.
  elseif kept and string.sub(kept, 24, 59) == owner_id then
    reply = 2
  elseif expires <= 0 then
    reply = 0
  elseif kept then
    reply = -2
  else
    -- Rule 16: a full Redis refuses only the first write of a script, and only one that needs
    -- memory. This one finds nothing.
    redis.pcall('DEL', record)
    reply = redis.pcall('SET', record, ARGV[4 * i - 2], 'PX', string.format('%.0f', expires))
    if not failed(reply) then
      wrote = true
      reply = mine and 1 or 3
    end
  end
  -- Rule 16: the lock goes last. Where the record could not be written, it stays.
  if mine and not failed(reply) then
    -- Rule 19: a cooldown only by who still held.
    let_go(key, owner_id, cooldown)
  end
${endOfEntry(1)}
end
return replies
`);
