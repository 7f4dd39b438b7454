import type { Answered, LockRequest, OwnedReply, ReleaseRequest } from "../../../lock/store.ts";
import { longestCooldownMs } from "../../../validation.ts";
import { unexpectedReply } from "../redis-errors.ts";
import { type Command, common, endOfEntries, gatheredForm, maxRecords, sent } from "./command.ts";
import { toldKey } from "./values.ts";

/**
 * One entry of a script about locks, and the script's end; `mine` is executed where the key holds
 * the owner id. Codes:
 *   1 done, where `mine` says so
 *   0 gone: no key
 *   -1 foreign: another value, or another type than a string
 *   -2 freed: the tombstone of this owner id, from which a person has taken the lock away
 */
function ofOwner(mine: string): string {
  return /* lua */ `
  local reply = -1
  local held = redis.pcall('GET', key)
  if not held then
    reply = 0
  elseif failed(held) then
    if not odd(held) then
      reply = held
    end
  elseif string.sub(held, 1, 36) == owner_id then
${mine}
  elseif string.sub(held, 1, 43) == 'freed:' .. owner_id .. ':' then
    reply = -2
  end
${endOfEntries(1)}`;
}

/**
 * Extends locks. KEYS: one for each entry.
 * ARGV[1] life, in ms.
 * ARGV[2], ARGV[3], ...: the owner id of each entry.
 *
 * Returns the clock, then the code of each entry: 1 says that the key has its full life again, or
 * more than that, because a life is never shortened.
 */
export const extendScript: string = sent(/* lua */ `
${common}
local replies = { now }
local life = tonumber(ARGV[1])
for i, key in ipairs(KEYS) do
  local owner_id = ARGV[1 + i]
${ofOwner(`
    reply = redis.pcall('PTTL', key)
    -- An older extend that arrives late must not take life away from a newer one.
    if not failed(reply) and reply < life then
      reply = redis.pcall('PEXPIRE', key, ARGV[1])
    end
    if not failed(reply) then
      reply = 1
    end`)}`);

/** Replaces the lock by its cooldown; deletes it if `left` is 0 or less. Returns 1 or an error. */
export const letGo: string = /* lua */ `
local function let_go(key, owner_id, left)
  local cooldown = left > 0 and 'cooldown:' .. owner_id
  -- Rule 19: a cooldown ends at a time of Redis' clock. Cap its life, in case that clock was set
  -- back.
  local life = cooldown and string.format('%.0f', math.min(left, ${longestCooldownMs}))
  if cooldown then
    -- Rule 16: SET before any DEL. While a Cluster moves the slot, it refuses to write a new key.
    local reply = redis.pcall('SET', key, cooldown, 'PX', life, 'XX')
    if reply and reply.ok then
      return 1
    end
  end
  -- Rule 16: a full Redis refuses a script only where its first write needs memory.
  local reply = redis.pcall('DEL', key)
  if not failed(reply) then
    if cooldown then
      redis.pcall('SET', key, cooldown, 'PX', life)
    end
  end
  return reply
end
`;

/**
 * Compare and delete: only the owner's key is ever deleted. The end of a cooldown is absolute and
 * equal in every copy, so that a late copy does not lengthen it.
 *
 * KEYS: one for each entry.
 * ARGV: for each entry the owner id, and Redis' time in ms at which the cooldown ends (0: none).
 *
 * Returns the clock, then the code of each entry: 1 says that this copy has deleted the key or left
 * a cooldown in it, or that an earlier copy has left this cooldown.
 */
export const releaseScript: string = sent(/* lua */ `
${common}
${letGo}
local replies = { now }
for i, key in ipairs(KEYS) do
  local owner_id = ARGV[2 * i - 1]
  local ends = tonumber(ARGV[2 * i])
${ofOwner(`
    reply = let_go(key, owner_id, ends - now)
  -- Rule 8: a cooldown with this owner id proves that an earlier copy of this release wrote it.
  elseif ends > 0 and held == 'cooldown:' .. owner_id then
    reply = 1`)}`);

/**
 * Rule 25: a release that tells the answer of its run. A copy that finds no lock of ours tells
 * nothing.
 *
 * KEYS: for each entry the lock and the answer told, which are in one slot.
 * ARGV: for each entry the owner id, the end of a cooldown (0: none), the answer, and its life in ms.
 *
 * Returns the codes of a release.
 */
export const tellScript: string = sent(/* lua */ `
${common}
${letGo}
local replies = { now }
for i = 1, #KEYS / 2 do
  local key = KEYS[2 * i - 1]
  local owner_id = ARGV[4 * i - 3]
${ofOwner(`
    reply = let_go(key, owner_id, tonumber(ARGV[4 * i - 2]) - now)
    -- Tell only after the release, and ignore an error: a full Redis must let the lock go.
    if not failed(reply) then
      redis.pcall('SET', KEYS[2 * i], ARGV[4 * i - 1], 'PX', ARGV[4 * i])
    end`)}`);

/** Returns the `read` of a command, each of whose codes stands for one kind of answer alone. */
export function kindOf<Kind extends string>(
  kinds: Readonly<Record<number, Kind>>,
): Command<never, Answered<Kind>>["read"] {
  return ({ code, redisTimeMs: storeTimeMs }) => {
    const kind = typeof code === "number" ? kinds[code] : undefined;
    return kind === undefined ? unexpectedReply(code) : { kind, storeTimeMs };
  };
}

const read = kindOf({ 1: "done", 0: "gone", [-1]: "foreign", [-2]: "freed" });

export const extendCommand: Command<LockRequest<OwnedReply>, OwnedReply> = {
  script: extendScript,
  gatheredScript: gatheredForm(extendScript),
  head: ({ command }) => [command.times.ttlMs],
  add: ({ command }, keys, args) => {
    keys.push(command.key);
    args.push(command.ownerId);
  },
  read,
};

export const releaseCommand: Command<ReleaseRequest, OwnedReply> = {
  script: releaseScript,
  gatheredScript: gatheredForm(releaseScript),
  add: ({ command, cooldownUntilMs }, keys, args) => {
    keys.push(command.key);
    args.push(command.ownerId, cooldownUntilMs);
  },
  read,
};

export const tellCommand: Command<ReleaseRequest, OwnedReply> = {
  script: tellScript,
  maxEntries: maxRecords,
  add: ({ command, cooldownUntilMs, told }, keys, args, recordKey) => {
    keys.push(command.key, toldKey(recordKey(command)));
    args.push(command.ownerId, cooldownUntilMs, told?.record ?? "", told?.lifeMs ?? 0);
  },
  read,
};
