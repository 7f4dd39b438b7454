import { common } from "./common.ts";
import { sent } from "./sent.ts";
import { longestLife, whose } from "./whose.ts";

/**
 * A person takes the lock away from whoever the id is.
 *
 * KEYS: one lock.
 * ARGV[1] the id: 8 digits or more of an owner id, of the SHA-1 of a value that is not ours, or of the
 *   SHA-1 of the key's name where it holds no text.
 * ARGV[2] who frees, ARGV[3] why: percent-encoded, so that no field holds a colon.
 * ARGV[4] life that is given to a lock without any expiry whose value names none, in ms.
 * ARGV[5] 1: delete it at once, whoever may be at work; else 0.
 *
 * Returns the clock, then:
 *   >= 0 freed: the ms until the next one may start
 *   -1 changed: the key holds something else; nothing was written
 *   -2 there was nothing
 */
export const freeScript: string = sent(/* lua */ `
${common}
${whose}
${longestLife}
local key = KEYS[1]
local id = ARGV[1]
local held = redis.pcall('GET', key)
if failed(held) and not odd(held) then
  return held
end
if not held then
  return { now, -2 }
end
local lease, freed, cooldown = whose(odd(held) and '' or held)
local named = lease or freed or cooldown or redis.sha1hex(odd(held) and key or held)
if string.sub(named, 1, string.len(id)) ~= id then
  return { now, -1 }
end
-- Rule 19: only what has no holder of ours is deleted.
if ARGV[5] == '1' or not (lease or freed) then
  local reply = redis.pcall('DEL', key)
  if failed(reply) then
    return reply
  end
  return { now, 0 }
end
local left = redis.pcall('PTTL', key)
if failed(left) then
  return left
end
local most = longest_life(held)
local life = left
if left < 0 then
  -- As long as its holder may believe in it: its own ttlMs, if the value has one.
  life = lease and most or tonumber(ARGV[4])
elseif most and left > most then
  -- Rule 18: Redis' clock was set back.
  life = most
end
if lease or life ~= left then
  -- 0 would delete it.
  left = math.max(life, 1)
  -- Rule 16: a full Redis refuses only the first write of a script, and only one that needs memory.
  -- This one takes no life away that its holder counts on.
  local reply = redis.pcall('PEXPIRE', key, string.format('%.0f', left))
  if failed(reply) then
    return reply
  end
end
if lease then
  local us = string.format('%.0f', time[1] * 1000000 + time[2])
  local value = 'freed:' .. lease .. ':' .. ARGV[2] .. ':' .. us .. ':' .. ARGV[3]
  -- Nobody shortens the life that another library has given to its lock.
  if not most then
    value = value .. ':foreign'
  end
  local reply = redis.pcall('SET', key, value, 'XX', 'KEEPTTL')
  if failed(reply) then
    return reply
  end
end
return { now, left }
`);
