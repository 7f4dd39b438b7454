import type {
  ForgetReply,
  ForgetRequest,
  FreeReply,
  FreeRequest,
  Inspection,
  InspectReply,
  InspectRequest,
  NoAnswer,
} from "../../../lock/store.ts";
import { longestCooldownMs, longestTtlMs } from "../../../validation.ts";
import { unexpectedReply } from "../redis-errors.ts";
import { type Command, common, sent } from "./command.ts";
import { outlivedOf } from "./outlive.ts";
import { kindOf } from "./release.ts";
import { decoded, isRecord, longestLife, outlivedKey, whose } from "./values.ts";

/**
 * The id of a value that is not ours. For a key that holds no text, its name is the value. Another
 * program's locks may all hold one value, so the moment of expiry, if any, is part of the id.
 */
const foreignId: string = /* lua */ `
local function clock()
  local at = redis.call('TIME')
  return at[1] * 1000 + math.floor(at[2] / 1000)
end
local function foreign_id(text, key)
  local before = clock()
  local left = redis.pcall('PTTL', key)
  local after = clock()
  if failed(left) then
    return false, left
  end
  -- Up to Redis 7.0 the clock moves during a script. The moment of expiry is exact only where both
  -- readings are in one millisecond.
  if before ~= after then
    return foreign_id(text, key)
  end
  if left >= 0 then
    text = text .. ':' .. string.format('%.0f', after + left)
  end
  return redis.sha1hex(text)
end
`;

/**
 * Looks at a key for a person. Writes nothing. Returns only an id and the first 16 bytes of a value
 * that is not a lease, a tombstone or a cooldown.
 *
 * KEYS: for each entry the lock, and the traces of the orders that have outlived theirs.
 *
 * Returns the clock, then for each entry (behind outlived:<traces> and a line feed, if any)
 * 0 for no key, or a text: the ms that it has to live (-1: no expiry), a colon, and
 *   the value, if it begins with a UUID or is a tombstone or a cooldown
 *   foreign:<foreign_id of the value>:<its first 16 bytes> for any other text
 *   other:<foreign_id of the key's name> for a key that holds no text
 */
export const inspectScript: string = sent(/* lua */ `
${common}
${whose}
${foreignId}
local replies = { now }
for i = 1, #KEYS / 2 do
  local key = KEYS[2 * i - 1]
  local reply = 0
  local held = redis.pcall('GET', key)
  local trace = redis.pcall('GET', KEYS[2 * i])
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
      reply = reply .. 'other:' .. foreign_id(key, key)
    else
      local lease, freed, cooldown = whose(held)
      if lease or freed or cooldown then
        reply = reply .. held
      else
        reply = reply .. 'foreign:' .. foreign_id(held, key) .. ':' .. string.sub(held, 1, 16)
      end
    end
  end
  if trace and not failed(trace) then
    reply = 'outlived:' .. trace .. '\\n' .. reply
  end
  replies[i + 1] = reply
end
return replies
`);

/**
 * Takes the lock away from the holder with the id, for a person.
 *
 * KEYS: one lock.
 * ARGV[1] the id: 8 digits or more of an owner id, or of the foreign_id of any other key.
 * ARGV[2] who frees, ARGV[3] why: percent-encoded, so that no field holds a colon.
 * ARGV[4] ms to live for a lock or tombstone without an expiry, if its value has no ttlMs.
 * ARGV[5] 1: delete it at once, although a holder may be at work; else 0.
 *
 * Returns the clock, then:
 *   >= 0 freed: the ms until the user's next order may start
 *   -1 changed: the key holds something else; nothing was written
 *   -2 there was nothing
 */
export const freeScript: string = sent(/* lua */ `
${common}
${whose}
${foreignId}
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
local named = lease or freed or cooldown
if not named then
  local refused
  named, refused = foreign_id(odd(held) and key or held, key)
  if refused then
    return refused
  end
end
if string.sub(named, 1, string.len(id)) ~= id then
  return { now, -1 }
end
-- Rule 19: a lease, or its tombstone, may have a living holder: deleted at once only if asked.
if ARGV[5] == '1' or not (lease or freed) then
  local reply = redis.pcall('DEL', key)
  return failed(reply) and reply or { now, 0 }
end
local left = redis.pcall('PTTL', key)
if failed(left) then
  return left
end
local most = longest_life(held)
local life = left
if left < 0 then
  -- The value's own ttlMs, if it has one: the holder counts on no more.
  life = lease and most or tonumber(ARGV[4])
elseif most and left > most then
  life = most -- Rule 18.
end
local reply
if lease or life ~= left then
  -- PEXPIRE of 0 would delete the key.
  left = math.max(life, 1)
  -- Rule 16: a full Redis refuses only a first write that needs memory. PEXPIRE needs none, and
  -- takes no life away that the holder counts on. LT: up to Redis 7.0 a millisecond may end after
  -- PTTL, and the same life again would end later.
  reply = redis.pcall('PEXPIRE', key, string.format('%.0f', left), 'LT')
end
if lease and not failed(reply) then
  local us = string.format('%.0f', time[1] * 1000000 + time[2])
  local value = 'freed:' .. lease .. ':' .. ARGV[2] .. ':' .. us .. ':' .. ARGV[3]
  -- Marks that the life is not ours to cut: another library gave it.
  if not most then
    value = value .. ':foreign'
  end
  reply = redis.pcall('SET', key, value, 'XX', 'KEEPTTL')
end
return failed(reply) and reply or { now, left }
`);

/**
 * Rule 26: deletes the record of a submission, for a person.
 *
 * KEYS: a lock, and the record beside it.
 * ARGV[1] the submission; ARGV[2] the owner id of the run whose record the caller has read.
 *
 * Returns the clock, then:
 *   1 deleted
 *   0 there was none
 *   -1 another run's record, or a value that is not a record; nothing was written
 *   -2 the lock is held for this submission; nothing was written
 */
export const forgetScript: string = sent(/* lua */ `
${common}
${isRecord}
local held = redis.pcall('GET', KEYS[1])
if failed(held) and not odd(held) then
  return held
end
-- The complete of this submission may be on its way, and would write the record again.
if type(held) == 'string' and string.sub(held, -46, -24) == ':' .. ARGV[1] then
  return { now, -2 }
end
local kept = redis.pcall('GET', KEYS[2])
if failed(kept) and not odd(kept) then
  return kept
end
if not kept then
  return { now, 0 }
end
if odd(kept) or not is_record(kept) or string.sub(kept, 24, 59) ~= ARGV[2] then
  return { now, -1 }
end
local reply = redis.pcall('DEL', KEYS[2])
return failed(reply) and reply or { now, 1 }
`);

/**
 * Deletes a lock that another program has left behind. All its locks begin with the same value and
 * the same life, so that a lock's age is that life less the rest of it.
 *
 * KEYS: one lock.
 * ARGV[1] the value; ARGV[2] the life that each lock begins with, in ms.
 * ARGV[3] the rest of that life, in ms, up to which it is deleted.
 * ARGV[4] 1: delete it; 0: only say what would happen.
 *
 * Returns:
 *   >= 0 deleted, or would be (ARGV[4] 0): the ms that it had to live
 *   -1 it has more than ARGV[3] to live, -2 there is no key, -3 another value, -4 no expiry
 *   -5 it has more than ARGV[2] to live: some locks begin with another life
 */
export const strandedScript: string = sent(/* lua */ `
${common}
local held = redis.pcall('GET', KEYS[1])
local left = redis.pcall('PTTL', KEYS[1])
if failed(left) or failed(held) and not odd(held) then
  return failed(left) and left or held
end
if not held or left == -2 then
  return -2
elseif held ~= ARGV[1] then
  return -3
elseif left < 0 then
  return -4
elseif left > tonumber(ARGV[2]) then
  return -5
elseif left > tonumber(ARGV[3]) then
  return -1
end
local reply = ARGV[4] == '1' and redis.pcall('DEL', KEYS[1])
return failed(reply) and reply or left
`);

export const inspectCommand: Command<InspectRequest, InspectReply> = {
  script: inspectScript,
  add: ({ command }, keys, _args, recordKey) => {
    keys.push(command.key, outlivedKey(command, recordKey));
  },
  read: ({ code, redisTimeMs: storeTimeMs }) => {
    const [, trace = "", behind] = /^outlived:([^\n]*)\n(.*)$/s.exec(String(code)) ?? [];
    const text = behind ?? String(code);
    const found = text === "0" ? ({ state: "free" } as const) : inspectionOf(text, storeTimeMs);
    if (!("state" in found)) return found;
    const outlived = outlivedOf(trace, storeTimeMs);
    const traced = outlived.length === 0 ? found : { ...found, outlived };
    return { kind: "inspected", found: traced, storeTimeMs };
  },
};

export const freeCommand: Command<FreeRequest, FreeReply> = {
  script: freeScript,
  maxEntries: 1,
  add: ({ command, id, by, reason, now }, keys, args) => {
    keys.push(command.key);
    args.push(id, by, reason, command.times.ttlMs, now ? 1 : 0);
  },
  read: ({ code, redisTimeMs: storeTimeMs }) => {
    if (typeof code !== "number" || code < -2) return unexpectedReply(code);
    if (code >= 0) {
      return { kind: "answered", result: { outcome: "freed", freeInMs: code }, storeTimeMs };
    }
    const outcome = code === -1 ? "changed" : "already-free";
    return { kind: "answered", result: { outcome }, storeTimeMs };
  },
};

export const forgetCommand: Command<ForgetRequest, ForgetReply> = {
  script: forgetScript,
  maxEntries: 1,
  add: ({ command, run }, keys, args, recordKey) => {
    keys.push(command.key, recordKey(command));
    args.push(command.submission?.id ?? "", run);
  },
  read: kindOf({ 1: "forgotten", 0: "absent", [-1]: "changed", [-2]: "inFlight" } as const),
};

function inspectionOf(text: string, storeTimeMs: number): Inspection | NoAnswer {
  const [, pttl, value] = /^(-1|\d+):(.+)$/s.exec(text) ?? [];
  if (value === undefined) return unexpectedReply(text);
  const expiresInMs = pttl === "-1" ? Number.POSITIVE_INFINITY : Number(pttl);
  const [state, rest = ""] = value.split(/:(.*)/s);
  switch (state) {
    case "foreign":
      return { state, id: idOf(rest), expiresInMs, valueStart: rest.slice(41) };
    case "other":
      return { state: "foreign", id: idOf(rest), expiresInMs, notText: true };
    case "cooldown":
      return { state, id: idOf(rest), expiresInMs, ...ifTooLong(expiresInMs, longestCooldownMs) };
    case "freed": {
      const [ownerId = "", by = "", , reason = "", isForeign] = rest.split(":");
      const texts = { by: decoded(by), reason: decoded(reason) };
      const tooLong = isForeign === undefined ? ifTooLong(expiresInMs, longestTtlMs) : {};
      return { state, id: idOf(ownerId), ...texts, expiresInMs, ...tooLong };
    }
    default:
      return heldOf(value, expiresInMs, storeTimeMs);
  }
}

const lockValue = /^.{36}:(\d{16}):(\d+):(\d+):([^:]*):/s;

function heldOf(value: string, expiresInMs: number, storeTimeMs: number): Inspection {
  const [, token, ttlMs, maxHoldMs, holder = ""] = lockValue.exec(value) ?? [];
  const held = { state: "held", id: idOf(value), holder: decoded(holder), expiresInMs } as const;
  if (token === undefined) {
    return { ...held, heldMs: undefined, renewedMs: undefined, endsInMs: undefined };
  }
  const heldMs = Math.max(0, storeTimeMs - Math.floor(Number(token) / 1_000));
  const renewedMs = Math.max(0, Number(ttlMs) - expiresInMs);
  const endsInMs = Math.max(0, Number(maxHoldMs) - heldMs);
  return { ...held, heldMs, renewedMs, endsInMs, ...ifTooLong(expiresInMs, Number(ttlMs)) };
}

/** Rule 18: usually, our value's life is above `mostMs` only if Redis' clock was set back. */
function ifTooLong(expiresInMs: number, mostMs: number): { readonly clockSetBack?: true } {
  const isTooLong = expiresInMs > mostMs && expiresInMs !== Number.POSITIVE_INFINITY;
  return isTooLong ? { clockSetBack: true } : {};
}

function idOf(ownerIdOrHash: string): string {
  return ownerIdOrHash.slice(0, 8);
}
