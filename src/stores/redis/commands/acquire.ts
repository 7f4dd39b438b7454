import type { AcquireReply, AcquireRequest, LockRequest } from "../../../lock/store.ts";
import { notARecord, ownError } from "../../../validation.ts";
import { unexpectedReply } from "../redis-errors.ts";
import {
  type CallSettings,
  type Command,
  common,
  type EntryReply,
  endOfEntries,
  gatheredForm,
  maxRecords,
  sent,
} from "./command.ts";
import { isRecord, longestLife, toldKey } from "./values.ts";

/** A cooldown's code is this number minus the ms that it still lasts: above minus any token. */
const cooldown = -1_000_000_000;
/** The least fencing token, in µs since 1970: clocks passed it in September 2001. */
const leastToken = 1e15;

const acquire = /* lua */ `
${longestLife}
-- Rule 2: nothing is taken after the deadline, or before the window.
local left = tonumber(ARGV[1]) - now
local in_time = left >= 0 and left <= tonumber(ARGV[2])
-- Rule 20: a floor 60 s ahead is from a wrong clock, and would make all later tokens as wrong.
local token = time[1] * 1000000 + time[2]
local floor_us = tonumber(ARGV[5])
if floor_us >= token and floor_us < token + 60000000 then
  token = floor_us + 1
end
local behind = ':' .. string.format('%.0f', token) .. ':' .. ARGV[6]
local replies = { now, token }
-- Tries for one lock. Returns a code of acquireScript or an error, and the value of a holder, too.
local function acquire(key, owner_id, value)
  -- If SET is not sent, fails or finds a key, GET looks for a holder.
  local reply = in_time and redis.pcall('SET', key, value, 'PX', ARGV[4], 'NX')
  if reply and reply.ok then
    return -1
  end
  local held = redis.pcall('GET', key)
  if odd(held) then
    return -4
  end
  if failed(held) then
    return held
  end
  if not held then
    return reply or -3
  end
  -- Rule 4: a confirm leaves its own life and token as they are.
  if string.sub(held, 1, 36) == owner_id then
    return -tonumber(string.sub(held, 38, string.find(held, ':', 38, true) - 1))
  end
  reply = redis.pcall('PTTL', key)
  -- Rule 18: a longer life is from a clock that was set back: cut it, unless Redis refuses.
  local most = longest_life(held)
  if most and not failed(reply) and (reply < 0 or reply > most) then
    if not failed(redis.pcall('PEXPIRE', key, most)) then
      reply = most
    end
  end
  -- Rule 19: a cooldown has no holder.
  if string.sub(held, 1, 9) == 'cooldown:' and not failed(reply) and reply >= 0 then
    return ${cooldown} - reply
  end
  -- Rule 18: a foreign key without an expiry would block its user forever.
  if not failed(reply) and reply < 0 then
    reply = redis.pcall('PEXPIRE', key, ARGV[3])
    if not failed(reply) then
      return tonumber(ARGV[3])
    end
  end
  return reply, held
end
`;

/**
 * Acquires locks. KEYS: one for each entry.
 * ARGV[1] deadline: Redis' time, in ms, after which no lock is taken any more.
 * ARGV[2] window: how long before the deadline a request may come, in ms; one that comes earlier was
 *   stamped by a wrong clock, and could take effect long after its caller has gone.
 * ARGV[3] life that is given to a foreign string without any expiry, in ms.
 * ARGV[4] life that is given to a lock that is taken, in ms.
 * ARGV[5] the highest fencing token or clock that was heard from this node, in µs.
 * ARGV[6] the middle of the value, equal for all entries: `<ttlMs>:<maxHoldMs>:<holder>:`.
 * ARGV[7], ARGV[8], ...: the owner id of each entry.
 *
 * Returns the clock, the token of a lock that is taken, then for each entry:
 *   -1 taken: it was free and in time, and holds the owner id now
 *   -1e9 and below, to -1e15: contended by a cooldown, and -1e9 less the ms that it lasts
 *   below -1e15 mine: it held this owner id already, with the token -reply; nothing was written
 *   -3 not taken: free, but the request came too late or too early; or a key was there at the SET,
 *      and had run out at the GET. Nothing was written
 *   -4 contended by a key that is not a string, and so not a lock; nothing was written
 *   >= 0 contended: another value, and the ms that it has to live
 */
export const acquireScript: string = sent(/* lua */ `
${common}
${acquire}
for i, key in ipairs(KEYS) do
  local owner_id = ARGV[6 + i]
  local reply = acquire(key, owner_id, owner_id .. behind .. ':')
${endOfEntries(2)}`);

const onceLua = /* lua */ `
${acquire}
${isRecord}
-- 22 dashes stand for no fingerprint, which is equal to any.
local function differ(one, other)
  local none = string.rep('-', 22)
  return one ~= other and one ~= none and other ~= none
end
-- Rule 16: read the record before the lock: it counts even where the lock is ours.
local function kept_for(record, fingerprint)
  local kept = redis.pcall('GET', record)
  if odd(kept) then
    return -7
  elseif kept and not failed(kept) then
    if not is_record(kept) then
      return -7
    elseif differ(string.sub(kept, 2, 23), fingerprint) then
      return -5
    end
  end
  return kept
end
local function acquire_once(key, owner_id, submission, fingerprint)
  local value = owner_id .. behind .. submission .. ':' .. fingerprint
  local reply, held = acquire(key, owner_id, value)
  if held and string.sub(held, -46, -24) == ':' .. submission then
    if differ(string.sub(held, -22), fingerprint) then
      return -6
    end
    if not failed(reply) then
      return 's' .. string.sub(held, 1, 36) .. string.format('%.0f', reply)
    end
  end
  return reply
end
`;

/**
 * Acquires for submissions.
 *
 * KEYS: for each entry the lock and the record, which are in one slot.
 * ARGV[1] to ARGV[6]: as for acquireScript.
 * ARGV[7], ...: for each entry the owner id, the submission's id and its fingerprint.
 *
 * Returns the codes of acquireScript, or for an entry:
 *   a string that begins with 1: completed; the string is the record
 *   s, the holder's owner id, the ms to live: contended; the holder is at work on this submission
 *   -5 mismatched: completed with another fingerprint
 *   -6 mismatched: the holder is at work on this id with another fingerprint
 *   -7 a value that is not a record is in the record's place; nothing was written
 */
export const acquireOnceScript: string = sent(/* lua */ `
${common}
${onceLua}
for i = 1, #KEYS / 2 do
  local owner_id = ARGV[3 * i + 4]
  local submission = ARGV[3 * i + 5]
  local fingerprint = ARGV[3 * i + 6]
  local reply = kept_for(KEYS[2 * i], fingerprint)
  if not reply then
    reply = acquire_once(KEYS[2 * i - 1], owner_id, submission, fingerprint)
  end
${endOfEntries(2)}`);

/**
 * Looks submissions up. Its deadline is always in 1970, so that it takes no lock.
 *
 * KEYS: for each entry the lock, the record, and the answer that a run told.
 * ARGV: as for acquireOnceScript, and behind the three of each entry the owner id of the run that
 *   the caller waits for, or ''.
 *
 * Returns the codes of acquireOnceScript, or for an entry:
 *   t and a record: the answer of that run (rule 25)
 */
export const lookUpScript: string = sent(/* lua */ `
${common}
${onceLua}
for i = 1, #KEYS / 3 do
  local owner_id = ARGV[4 * i + 3]
  local submission = ARGV[4 * i + 4]
  local fingerprint = ARGV[4 * i + 5]
  local run = ARGV[4 * i + 6]
  local reply = kept_for(KEYS[3 * i - 1], fingerprint)
  if not reply and run ~= '' then
    local told = redis.pcall('GET', KEYS[3 * i])
    if told and not failed(told) and string.sub(told, 24, 59) == run then
      reply = 't' .. told
    end
  end
  if not reply then
    reply = acquire_once(KEYS[3 * i - 2], owner_id, submission, fingerprint)
  end
${endOfEntries(2)}`);

function headOfCall({ command, deadlineMs, floorUs }: CallSettings): (string | number)[] {
  const { ttlMs, maxHoldMs, acquireTimeoutMs } = command.times;
  const tail = `${ttlMs}:${maxHoldMs}:${command.holder}:`;
  return [deadlineMs, 2 * acquireTimeoutMs, maxHoldMs, ttlMs, floorUs, tail];
}

export const acquireCommand: Command<LockRequest<AcquireReply>, AcquireReply> = {
  script: acquireScript,
  gatheredScript: gatheredForm(acquireScript),
  headLength: 2,
  head: headOfCall,
  add: ({ command }, keys, args) => {
    keys.push(command.key);
    args.push(command.ownerId);
  },
  read: acquireReply,
};

export const acquireOnceCommand: Command<LockRequest<AcquireReply>, AcquireReply> = {
  ...acquireCommand,
  script: acquireOnceScript,
  gatheredScript: gatheredForm(acquireOnceScript),
  maxEntries: maxRecords,
  repliesBytes: true,
  add: ({ command }, keys, args, recordKey) => {
    const { fingerprint = "", id = "" } = command.submission ?? {};
    keys.push(command.key, recordKey(command));
    args.push(command.ownerId, id, fingerprint);
  },
};

export const lookUpCommand: Command<AcquireRequest, AcquireReply> = {
  ...acquireOnceCommand,
  script: lookUpScript,
  gatheredScript: gatheredForm(lookUpScript),
  head: (settings) => headOfCall({ ...settings, deadlineMs: 0 }),
  add: (request, keys, args, recordKey) => {
    acquireOnceCommand.add(request, keys, args, recordKey);
    keys.push(toldKey(recordKey(request.command)));
    args.push(request.waitsFor ?? "");
  },
};

/** A grant is −1 or minus a token, which no proxy, test double or `null` yields by accident. */
export function acquireReply({ code, fencingToken, redisTimeMs }: EntryReply): AcquireReply {
  const storeTimeMs = redisTimeMs;
  if (typeof code !== "number") return textReply(code, storeTimeMs);
  switch (code) {
    case -1:
      return { kind: "taken", storeTimeMs, fencingToken };
    case -3:
      return { kind: "outOfWindow", storeTimeMs };
    case -4:
      return { kind: "contended", expiresInMs: Number.POSITIVE_INFINITY, storeTimeMs };
    case -5:
      return { kind: "mismatched", inFlight: false, storeTimeMs };
    case -6:
      return { kind: "mismatched", inFlight: true, storeTimeMs };
    case -7:
      return { kind: "rejected", cause: ownError(notARecord), misconfigured: false };
  }
  if (code >= 0) return { kind: "contended", expiresInMs: code, storeTimeMs };
  if (code <= -leastToken) return { kind: "mine", storeTimeMs, fencingToken: -code };
  if (code > cooldown) return unexpectedReply(code);
  return { kind: "contended", expiresInMs: cooldown - code, isCooldown: true, storeTimeMs };
}

function textReply(text: string | Buffer, storeTimeMs: number): AcquireReply {
  const bytes = typeof text === "string" ? Buffer.from(text) : text;
  switch (String.fromCharCode(bytes[0] ?? 0)) {
    case "s": {
      const holderId = bytes.toString("latin1", 1, 37);
      const expiresInMs = Number(bytes.toString("latin1", 37));
      return { kind: "contended", expiresInMs, sameSubmission: true, holderId, storeTimeMs };
    }
    case "t":
      return { kind: "told", record: bytes.subarray(1), storeTimeMs };
    default:
      return { kind: "completed", record: bytes, storeTimeMs };
  }
}
