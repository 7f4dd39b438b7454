import { longestCooldownMs, longestTtlMs } from "../../../lock/store.ts";

const uuid: string = [8, 4, 4, 4, 12].map((digits) => "%x".repeat(digits)).join("%-");

/**
 * Whose owner id a value names, and in which of its three forms. A value that begins with a UUID may
 * be a lock of 0.1 or of another library: whatever follows, its holder may live.
 */
export const whose: string = /* lua */ `
local function whose(held)
  local lease = string.match(held, '^(${uuid})')
  local freed = string.match(held, '^freed:(${uuid}):')
  local cooldown = string.match(held, '^cooldown:(${uuid})$')
  return lease, freed, cooldown
end
`;

/**
 * The longest life that we give to a value: a key that has more is there because Redis' clock was set
 * back. Nothing for a value of another library, and for the tombstone of one.
 */
export const longestLife: string = /* lua */ `
local function longest_life(held)
  local ttl = tonumber(string.match(held, '^${uuid}:${"%d".repeat(16)}:(%d+):%d+:') or 0)
  if ttl > 0 then
    return ttl
  end
  if string.match(held, '^cooldown:(${uuid})$') then
    return ${longestCooldownMs}
  end
  if string.match(held, '^freed:(${uuid}):') and string.sub(held, -8) ~= ':foreign' then
    return ${longestTtlMs}
  end
end
`;
