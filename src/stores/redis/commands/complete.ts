import type { CompleteReply, CompleteRequest } from "../../../lock/store.ts";
import { longestRetainMs } from "../../../validation.ts";
import { type Command, common, endOfEntries, gatheredForm, maxRecords, sent } from "./command.ts";
import { kindOf, letGo } from "./release.ts";
import { isRecord } from "./values.ts";

/**
 * The first of a complete's two steps. It answers `late` where it has recorded, because it does not
 * see the lock.
 */
export type RecordRequest = Omit<CompleteRequest, "cooldownUntilMs">;

/** Rule 15: checks in this order: this run's own record, the expiry, another run's record. */
const keep = /* lua */ `
${isRecord}
local function keep(record, owner_id, text, expires)
  local kept = redis.pcall('GET', record)
  if odd(kept) then
    return -4
  elseif failed(kept) then
    return kept
  elseif kept and not is_record(kept) then
    return -4
  elseif kept and string.sub(kept, 24, 59) == owner_id then
    return 2
  elseif expires <= 0 then
    return 0
  elseif kept then
    return -2
  end
  -- Rule 16: a full Redis refuses a script only where its first write needs memory. This DEL needs
  -- none, and finds no key.
  redis.pcall('DEL', record)
  -- A process' clock that was set forward makes the expiry too late.
  local life = string.format('%.0f', math.min(expires, ${longestRetainMs}))
  local reply = redis.pcall('SET', record, text, 'PX', life)
  if failed(reply) then
    return reply
  end
  return 3
end
`;

/**
 * Writes records and releases their locks.
 *
 * KEYS: for each entry the lock and the record, which are in one slot.
 * ARGV: for each entry the owner id, the record, Redis' time in ms at which it expires, and
 *   the end of a cooldown (0: none). All are equal in every copy.
 *
 * Returns the clock, then for each entry:
 *   1 recorded; the lock was ours and is released
 *   2 recorded by an earlier copy
 *   3 recorded, but the lock was not ours any more
 *   0 too late: the record would have expired; nothing was recorded
 *   -2 another owner id has recorded an answer: the submission ran twice
 *   -4 a value that is not a record is in the record's place; nothing was recorded
 */
export const completeScript: string = sent(/* lua */ `
${common}
${letGo}
${keep}
local replies = { now }
for i = 1, #KEYS / 2 do
  local key = KEYS[2 * i - 1]
  local owner_id = ARGV[4 * i - 3]
  local held = redis.pcall('GET', key)
  local mine = type(held) == 'string' and string.sub(held, 1, 36) == owner_id
  -- Rule 23: the node may refuse the lock, which has moved, and not the record.
  local reply = held
  if not failed(held) or odd(held) then
    reply = keep(KEYS[2 * i], owner_id, ARGV[4 * i - 2], tonumber(ARGV[4 * i - 1]) - now)
  end
  if reply == 3 and mine then
    reply = 1
  end
  -- Rule 16: the lock goes last, whatever the code (0, -2, -4 too). With an error it stays.
  if mine and not failed(reply) then
    let_go(key, owner_id, tonumber(ARGV[4 * i]) - now)
  end
${endOfEntries(1)}`);

/**
 * Writes records alone, for a complete that is written again on a Cluster (rule 16): a release
 * follows.
 *
 * KEYS: the record of each entry.
 * ARGV: for each entry the owner id, the record, and Redis' time in ms at which it expires.
 *
 * Returns the codes of a complete, but 3 instead of 1, because it does not see the lock.
 */
export const recordScript: string = sent(/* lua */ `
${common}
${keep}
local replies = { now }
for i, record in ipairs(KEYS) do
  local reply = keep(record, ARGV[3 * i - 2], ARGV[3 * i - 1], tonumber(ARGV[3 * i]) - now)
${endOfEntries(1)}`);

const read = kindOf({
  ...({ 1: "recorded", 2: "recorded", 3: "late" } as const),
  ...({ 0: "expired", [-2]: "duplicate", [-4]: "unrecordable" } as const),
});

export const completeCommand: Command<CompleteRequest, CompleteReply> = {
  script: completeScript,
  gatheredScript: gatheredForm(completeScript),
  maxEntries: maxRecords,
  add: ({ command, record, expiresAtMs, cooldownUntilMs }, keys, args, recordKey) => {
    keys.push(command.key, recordKey(command));
    args.push(command.ownerId, record, expiresAtMs, cooldownUntilMs);
  },
  read,
};

export const recordCommand: Command<RecordRequest, CompleteReply> = {
  script: recordScript,
  maxEntries: maxRecords,
  add: ({ command, record, expiresAtMs }, keys, args, recordKey) => {
    keys.push(recordKey(command));
    args.push(command.ownerId, record, expiresAtMs);
  },
  read,
};
