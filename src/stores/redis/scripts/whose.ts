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
