/**
 * Every script is for one entry or many, and every entry is independent of its neighbours. Every
 * reply begins with Redis' own clock in milliseconds, read before the first write: rules 6 and 12 go
 * by it.
 *
 * What Redis does not permit or cannot do (a missing permission, no memory, a read-only replica)
 * fails the whole call as long as nothing has been written, so that an error of the call means that
 * nothing was taken, and clients see it as they see any other. Once something has been written, an
 * error is the answer of its own entry only.
 */
export const common = /* lua */ `
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local wrote = false
local function failed(reply)
  return type(reply) == 'table' and reply.err ~= nil
end
-- A key of another type: an error of its own entry, which no neighbour has to share.
local function odd(reply)
  return failed(reply) and string.find(reply.err, 'WRONGTYPE', 1, true)
end
`;

/**
 * The end of an entry: what came of it takes its place among the replies.
 *
 * @param headLength how many numbers the replies begin with.
 */
export function endOfEntry(headLength: number): string {
  return /* lua */ `
  -- As long as nothing was written, an error is that of the whole call.
  if failed(reply) and not wrote then
    return reply
  end
  replies[i + ${headLength}] = reply
`;
}
