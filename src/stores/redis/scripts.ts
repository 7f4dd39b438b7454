/**
 * The three scripts, each for one key or many. Every entry is independent of its neighbours, and
 * every reply begins with Redis' own clock in milliseconds, read before the first write: rules 6 and
 * 12 go by it.
 *
 * What Redis does not permit or cannot do (a missing permission, no memory, a read-only replica)
 * fails the whole call as long as nothing has been written, so that an error of the call means that
 * nothing was taken, and clients see it as they see any other. Once something has been written, an
 * error is the answer of its own entry only.
 */

/** What every script begins with. */
const common = /* lua */ `
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function failed(reply)
  return type(reply) == 'table' and reply.err ~= nil
end
`;

/**
 * KEYS: one an entry.
 * ARGV[1] deadline: Redis' time, in ms, after which nothing is taken any more.
 * ARGV[2] window: how long before the deadline a request may come, in ms; one that comes earlier was
 *   stamped by a wrong clock, and could take effect long after its caller has gone.
 * ARGV[3] life that is given to a foreign string without any expiry, in ms.
 * ARGV[4] life that is given to what is taken, in ms.
 * ARGV[5], ARGV[6], ...: the owner id of each entry.
 *
 * Returns the clock, then for each entry:
 *   -1 taken: it was free and in time, and holds the owner id now
 *   -2 mine: it held this owner id already; nothing was written, its life stays
 *   -3 out of its window: free, or just run out, but the request came too late or too early; nothing
 *      was written
 *   -4 contended by a key that is no string, and so no lock; nothing was written
 *   >= 0 contended: another value, and the ms that it has to live
 */
export const acquireScript: string = sent(/* lua */ `
${common}
local replies = { now }
local wrote = false
-- Rule 2: a request that is late or early takes nothing.
local left = tonumber(ARGV[1]) - now
local in_time = left >= 0 and left <= tonumber(ARGV[2])
for i, key in ipairs(KEYS) do
  local owner_id = ARGV[4 + i]
  -- One command where the key is free. If SET fails for any reason, GET below decides what to
  -- report. (Where GET alone is not permitted, it is the release that fails: check() of the lock
  -- finds that at boot.)
  local reply = in_time and redis.pcall('SET', key, owner_id, 'PX', ARGV[4], 'NX')
  if reply and reply.ok then
    wrote = true
    reply = -1
  else
    local held = redis.pcall('GET', key)
    -- Rule 4: a confirm finds its own owner id, and leaves the life as it is.
    if held == owner_id then
      reply = -2
    elseif failed(held) then
      reply = held
      -- One key of another type must not fail its neighbours.
      if string.find(held.err, 'WRONGTYPE', 1, true) then
        reply = -4
      end
    elseif held then
      reply = redis.pcall('PTTL', key)
      -- A key of an old lock whose EXPIRE never came would block its user for ever.
      if not failed(reply) and reply < 0 then
        reply = redis.pcall('PEXPIRE', key, ARGV[3])
        if not failed(reply) then
          wrote = true
          reply = tonumber(ARGV[3])
        end
      end
    -- Free and out of its window. (Free although SET failed: the reply is still SET's error.)
    elseif not reply then
      reply = -3
    end
  end
  -- As long as nothing was written, an error is that of the whole call.
  if failed(reply) and not wrote then
    return reply
  end
  replies[i + 1] = reply
end
return replies
`);

/**
 * KEYS: one an entry.
 * ARGV[1] life, in ms.
 * ARGV[2], ARGV[3], ...: the owner id of each entry.
 *
 * Returns the clock, then for each entry:
 *   1 it held the owner id, and has its full life again, or more than that: it is never shortened
 *   0 gone: no key
 *   -1 foreign: another value, or no string
 */
export const extendScript: string = sent(/* lua */ `
${common}
local replies = { now }
local wrote = false
local life = tonumber(ARGV[1])
for i, key in ipairs(KEYS) do
  local reply = -1
  local held = redis.pcall('GET', key)
  if held == ARGV[1 + i] then
    reply = redis.pcall('PTTL', key)
    -- An older extend that arrives late must not take life away from a newer one.
    if not failed(reply) and reply < life then
      reply = redis.pcall('PEXPIRE', key, ARGV[1])
      wrote = wrote or not failed(reply)
    end
    if not failed(reply) then
      reply = 1
    end
  elseif not held then
    reply = 0
  -- A key of another type is foreign; any other error is the reply.
  elseif failed(held) and not string.find(held.err, 'WRONGTYPE', 1, true) then
    reply = held
  end
  -- As long as nothing was written, an error is that of the whole call.
  if failed(reply) and not wrote then
    return reply
  end
  replies[i + 1] = reply
end
return replies
`);

/**
 * KEYS: one an entry.
 * ARGV[1], ARGV[2], ...: the owner id of each entry.
 *
 * Returns the clock, then for each entry:
 *   1 it held the owner id, and was deleted
 *   0 gone: no key
 *   -1 foreign: another value, or no string
 */
export const releaseScript: string = sent(/* lua */ `
${common}
local replies = { now }
local wrote = false
for i, key in ipairs(KEYS) do
  local reply = -1
  local held = redis.pcall('GET', key)
  -- Compare and delete: only the owner's key is ever deleted.
  if held == ARGV[i] then
    reply = redis.pcall('DEL', key)
    wrote = wrote or not failed(reply)
  elseif not held then
    reply = 0
  -- A key of another type is foreign; any other error is the reply.
  elseif failed(held) and not string.find(held.err, 'WRONGTYPE', 1, true) then
    reply = held
  end
  -- As long as nothing was written, an error is that of the whole call.
  if failed(reply) and not wrote then
    return reply
  end
  replies[i + 1] = reply
end
return replies
`);

/** The text travels with every call, so it leaves without its comments and its indentation. */
function sent(script: string): string {
  return script
    .split("\n")
    .map((line) => line.replace(/--.*$/, "").trim())
    .filter((line) => line !== "")
    .join("\n");
}
