import { common } from "./common.ts";
import { sent } from "./sent.ts";
import { whose } from "./whose.ts";

/**
 * For a person who looks: nothing is written, and no value leaves Redis but those of ours.
 *
 * KEYS: one an entry.
 *
 * Returns the clock, then for each entry 0 for no key, or a text: the ms that it has to live (-1: it
 * has no expiry), a colon, and
 *   the value, if it begins with a UUID or is a tombstone or a cooldown
 *   foreign:<SHA-1 of the value> for any other text
 *   other:<SHA-1 of the key's name> for a key that holds no text
 */
export const inspectScript: string = sent(/* lua */ `
${common}
${whose}
local replies = { now }
for i, key in ipairs(KEYS) do
  local reply = 0
  local held = redis.pcall('GET', key)
  local left = redis.pcall('PTTL', key)
  if failed(left) then
    return left
  end
  if failed(held) and not odd(held) then
    return held
  end
  if held and left ~= -2 then
    reply = string.format('%.0f', left) .. ':'
    if odd(held) then
      reply = reply .. 'other:' .. redis.sha1hex(key)
    else
      local lease, freed, cooldown = whose(held)
      if lease or freed or cooldown then
        reply = reply .. held
      else
        reply = reply .. 'foreign:' .. redis.sha1hex(held)
      end
    end
  end
  replies[i + 1] = reply
end
return replies
`);
