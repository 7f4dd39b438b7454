import { common, endOfEntry } from "./common.ts";
import { sent } from "./sent.ts";

/**
 * One half of an acquire for a submission, while a Cluster moves the slot.
 *
 * KEYS: the record of each entry. ARGV: the fingerprint of each entry.
 *
 * Returns the clock, then for each entry the record, or:
 *   0 none
 *   -5 mismatched: completed with another fingerprint
 *   -7 something that is no record stands where it belongs
 */
export const lookScript: string = sent(/* lua */ `
${common}
local replies = { now }
local none = string.rep('-', 22)
for i, key in ipairs(KEYS) do
  local fingerprint = ARGV[i]
  local reply = redis.pcall('GET', key)
  if not reply then
    reply = 0
  elseif odd(reply) then
    reply = -7
  elseif failed(reply) then
    return reply
  elseif string.sub(reply, 1, 1) ~= '1' or string.sub(reply, 60, 60) ~= '{' then
    reply = -7
  else
    local kept = string.sub(reply, 2, 23)
    if kept ~= fingerprint and kept ~= none and fingerprint ~= none then
      reply = -5
    end
  end
  replies[i + 1] = reply
end
return replies
`);

/**
 * One half of a complete, while a Cluster moves the slot.
 *
 * KEYS: the record of each entry.
 * ARGV: for each entry the owner id, the record's text, and Redis' time in ms at which it expires.
 *
 * Returns the clock, then for each entry what the whole script does, but 3 for 1 as well: it does not
 * see the lock.
 */
export const recordScript: string = sent(/* lua */ `
${common}
local replies = { now }
for i, record in ipairs(KEYS) do
  local expires = tonumber(ARGV[3 * i]) - now
  local kept = redis.pcall('GET', record)
  local reply
  if odd(kept) then
    reply = -4
  elseif failed(kept) then
    reply = kept
  elseif kept and (string.sub(kept, 1, 1) ~= '1' or string.sub(kept, 60, 60) ~= '{') then
    reply = -4
  -- Rule 15, in this order: its own, then too late, and only then another's.
  elseif kept and string.sub(kept, 24, 59) == ARGV[3 * i - 2] then
    reply = 2
  elseif expires <= 0 then
    reply = 0
  elseif kept then
    reply = -2
  else
    redis.pcall('DEL', record)
    reply = redis.pcall('SET', record, ARGV[3 * i - 1], 'PX', string.format('%.0f', expires))
    if not failed(reply) then
      wrote = true
      reply = 3
    end
  end
${endOfEntry(1)}
end
return replies
`);
