import { common, endOfEntry } from "./common.ts";
import { sent } from "./sent.ts";

/**
 * KEYS: one an entry.
 * ARGV[1] life, in ms.
 * ARGV[2], ARGV[3], ...: the owner id of each entry.
 *
 * Returns the clock, then for each entry:
 *   1 it held the owner id, and has its full life again, or more than that: it is never shortened
 *   0 gone: no key
 *   -1 foreign: another value, or no string
 *   -2 freed: a person has taken it away from this owner id
 */
export const extendScript: string = sent(/* lua */ `
${common}
local replies = { now }
local life = tonumber(ARGV[1])
for i, key in ipairs(KEYS) do
  local reply = -1
  local held = redis.pcall('GET', key)
  if not held then
    reply = 0
  elseif failed(held) then
    if not odd(held) then
      reply = held
    end
  elseif string.sub(held, 1, 36) == ARGV[1 + i] then
    reply = redis.pcall('PTTL', key)
    -- An older extend that arrives late must not take life away from a newer one.
    if not failed(reply) and reply < life then
      reply = redis.pcall('PEXPIRE', key, ARGV[1])
      wrote = wrote or not failed(reply)
    end
    if not failed(reply) then
      reply = 1
    end
  -- Rule 19.
  elseif string.sub(held, 1, 43) == 'freed:' .. ARGV[1 + i] .. ':' then
    reply = -2
  end
${endOfEntry(1)}
end
return replies
`);
