/**
 * The three scripts, each for one key or many. Every entry is independent of its neighbours, and
 * every reply begins with Redis' own clock in milliseconds, read before the first write.
 *
 * Nothing is written before everything that can fail for the whole call has been checked by Redis
 * (key permissions, memory, read-only replica), so that an error means that nothing was taken.
 */

const readClock = `
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local replies = { now }
`;

/**
 * KEYS: one an entry.
 * ARGV[1] deadline: Redis' time, in ms, after which nothing is taken any more.
 * ARGV[2] window: how far before the deadline a copy may come, in ms; a copy that comes earlier was
 *   stamped by a wrong clock, and could take effect long after its caller has gone.
 * ARGV[3] life that is given to a foreign string without any expiry, in ms.
 * ARGV[4], ARGV[5], ...: owner id and life in ms, for each entry.
 *
 * Returns the clock, then for each entry:
 *   -1 taken: it was free and in time, and holds the owner id now
 *   -2 mine: it held this owner id already; nothing was written, its life stays
 *   -3 refused: free, but the copy was too late or too early; nothing was written
 *   -4 unusable: no string; nothing was written
 *   >= 0 contended: another value, and the ms that it has to live
 */
export const acquireScript: string = stripped(`
${readClock}
local left = tonumber(ARGV[1]) - now
local in_time = left >= 0 and left <= tonumber(ARGV[2])
for i, key in ipairs(KEYS) do
  local owner_id = ARGV[2 + 2 * i]
  -- pcall: one key of another type must not fail the neighbours' entries.
  local held = redis.pcall('GET', key)
  local reply
  if type(held) == 'table' then
    reply = -4
  elseif held == owner_id then
    reply = -2
  elseif held then
    reply = redis.call('PTTL', key)
    -- A key of an old lock whose EXPIRE never came would block its user for ever.
    if reply < 0 then
      reply = tonumber(ARGV[3])
      redis.call('PEXPIRE', key, ARGV[3])
    end
  elseif in_time then
    redis.call('SET', key, owner_id, 'PX', ARGV[3 + 2 * i])
    reply = -1
  else
    reply = -3
  end
  replies[i + 1] = reply
end
return replies
`);

/**
 * KEYS: one an entry. ARGV: owner id and life in ms, for each entry.
 *
 * Returns the clock, then for each entry: 1 lengthened to the full life (never shortened), 0 gone,
 * -1 foreign.
 */
export const extendScript: string = stripped(`
${readClock}
for i, key in ipairs(KEYS) do
  local held = redis.pcall('GET', key)
  local reply = -1
  if not held then
    reply = 0
  elseif held == ARGV[2 * i - 1] then
    reply = 1
    -- An older extend that arrives late must not take life away from a newer one.
    if redis.call('PTTL', key) < tonumber(ARGV[2 * i]) then
      redis.call('PEXPIRE', key, ARGV[2 * i])
    end
  end
  replies[i + 1] = reply
end
return replies
`);

/**
 * KEYS: one an entry. ARGV: the owner id of each entry.
 *
 * Returns the clock, then for each entry: 1 deleted, 0 gone, -1 foreign.
 */
export const releaseScript: string = stripped(`
${readClock}
for i, key in ipairs(KEYS) do
  local held = redis.pcall('GET', key)
  local reply = -1
  if not held then
    reply = 0
  elseif held == ARGV[i] then
    reply = redis.call('DEL', key)
  end
  replies[i + 1] = reply
end
return replies
`);

/** The text travels with every call, so that comments and indentation stay at home. */
function stripped(script: string): string {
  return script
    .split("\n")
    .map((line) => line.replace(/--.*$/, "").trim())
    .filter((line) => line !== "")
    .join("\n");
}
