import { longestCooldownMs } from "../../../lock/store.ts";
import { common, endOfEntry } from "./common.ts";
import { sent } from "./sent.ts";

/**
 * Lets go of a lock that is the owner's, with a cooldown of so many milliseconds or without one.
 * Returns 1, or the error of the deletion.
 */
export const letGo: string = /* lua */ `
local function let_go(key, owner_id, left)
  local cooldown = 'cooldown:' .. owner_id
  -- Rule 19: its end is an absolute time, which a clock that was set back moves away.
  local life = string.format('%.0f', math.min(left, ${longestCooldownMs}))
  if left > 0 then
    -- Rule 16: over the lock. While a Cluster moves the slot, a key that was deleted is not written.
    local reply = redis.pcall('SET', key, cooldown, 'PX', life, 'XX')
    if reply and reply.ok then
      wrote = true
      return 1
    end
  end
  -- Rule 16: a full Redis refuses a first write that needs memory, and no other.
  local reply = redis.pcall('DEL', key)
  if not failed(reply) then
    wrote = true
    if left > 0 then
      redis.pcall('SET', key, cooldown, 'PX', life)
    end
  end
  return reply
end
`;

/**
 * KEYS: one an entry.
 * ARGV[1], ARGV[2], ...: the owner id of each entry.
 *
 * Returns the clock, then for each entry:
 *   1 it held the owner id, and was deleted
 *   0 gone: no key
 *   -1 foreign: another value, or no string
 *   -2 freed: a person has taken it away from this owner id
 */
export const releaseScript: string = sent(/* lua */ `
${common}
local replies = { now }
for i, key in ipairs(KEYS) do
  local reply = -1
  local held = redis.pcall('GET', key)
  if not held then
    reply = 0
  elseif failed(held) then
    if not odd(held) then
      reply = held
    end
  -- Compare and delete: only the owner's key is ever deleted.
  elseif string.sub(held, 1, 36) == ARGV[i] then
    reply = redis.pcall('DEL', key)
    wrote = wrote or not failed(reply)
  -- Rule 19: a tombstone stays, whoever meets it.
  elseif string.sub(held, 1, 43) == 'freed:' .. ARGV[i] .. ':' then
    reply = -2
  end
${endOfEntry(1)}
end
return replies
`);

/**
 * The same where a cooldown is left behind: Redis' time, in ms, until which the key keeps everybody
 * out. It is absolute and equal in every copy, so that a late copy does not lengthen it.
 *
 * KEYS: one an entry.
 * ARGV: for each entry the owner id and the end of the cooldown.
 *
 * Returns what the other script does; 1 also where an earlier copy has left this cooldown.
 */
export const cooldownScript: string = sent(/* lua */ `
${common}
${letGo}
local replies = { now }
for i, key in ipairs(KEYS) do
  local reply = -1
  local owner_id = ARGV[2 * i - 1]
  local left = tonumber(ARGV[2 * i]) - now
  local held = redis.pcall('GET', key)
  if not held then
    reply = 0
  elseif failed(held) then
    if not odd(held) then
      reply = held
    end
  elseif string.sub(held, 1, 36) == owner_id then
    reply = let_go(key, owner_id, left)
  -- Rule 19: the value names whose cooldown it is, and so proves the earlier copy.
  elseif held == 'cooldown:' .. owner_id then
    reply = 1
  elseif string.sub(held, 1, 43) == 'freed:' .. owner_id .. ':' then
    reply = -2
  end
${endOfEntry(1)}
end
return replies
`);
