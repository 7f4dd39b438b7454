import type { LockCommand } from "../../../lock/store.ts";
import { longestCooldownMs, longestTtlMs } from "../../../validation.ts";

/**
 * The values of the keys, as scripts read them. A lock's key:
 *
 * ```
 * <owner id>:<fencing token>:<ttlMs>:<maxHoldMs>:<holder>:<submission>:<fingerprint>   a lease
 * cooldown:<owner id>                                                                   a cooldown
 * freed:<owner id>:<by>:<time>:<reason>[:foreign]                                       a tombstone
 * ```
 *
 * A record, and an answer that a run told: `1`, the fingerprint (22), the owner id (36), `=`, and
 * content that no script reads. `lock/record.ts` writes and reads it.
 *
 * The traces of a user's orders that have outlived their locks, and the ends of such orders, with
 * commas between them:
 *
 * ```
 * <owner id>:<taken, ms>:<ended, ms>:<reason>:<holder>
 * <owner id>:ended
 * ```
 */

const uuid: string = [8, 4, 4, 4, 12].map((digits) => "%x".repeat(digits)).join("%-");

/** `inspect` and `free`: a value that begins with a UUID is a lease, maybe of another library. */
export const whose: string = /* lua */ `
local function whose(held)
  local lease = string.match(held, '^(${uuid})')
  local freed = string.match(held, '^freed:(${uuid}):')
  local cooldown = string.match(held, '^cooldown:(${uuid})$')
  return lease, freed, cooldown
end
`;

/** The longest life that we give a value; more means a clock set back. Nil for a foreign value. */
export const longestLife: string = /* lua */ `
local function longest_life(held)
  local ttl = tonumber(string.match(held, '^${uuid}:${"%d".repeat(16)}:(%d+):%d+:') or 0)
  if ttl > 0 then
    return ttl
  end
  if string.match(held, '^cooldown:(${uuid})$') then
    return ${longestCooldownMs}
  end
  -- Without the field that freeScript adds for a life that is not ours.
  if string.match(held, '^freed:(${uuid}):[^:]*:%d+:[^:]*$') then
    return ${longestTtlMs}
  end
end
`;

export const isRecord: string = /* lua */ `
local function is_record(value)
  return string.sub(value, 1, 1) == '1' and string.sub(value, 60, 60) == '='
end
`;

/** Rule 19: the key of a user's traces of outlived orders, in the lock's slot. No acquire reads it. */
export function outlivedKey(
  command: LockCommand,
  recordKey: (command: LockCommand) => string,
): string {
  const submission = { id: "outlived", fingerprint: "" };
  return `${command.key}:${recordKey({ ...command, submission })}`;
}

/** Rule 25: the key of the answer that a run has told. Only looks of waiting repeats read it. */
export function toldKey(recordKey: string): string {
  return `${recordKey}:told`;
}

/** The lock's key in the key of a record, of a told answer, or of rule 24's question. */
export const besideLock: RegExp = /^(.*):(?:[\w-]{22}(?::told)?|shared-[\da-f-]{36}-\d+)$/s;

/** The lock's key in the key that {@link outlivedKey} makes. */
export const ofOutlived: RegExp = /^(.*):(?:\{.*\1\}|\1):outlived$/s;

/** Percent-decodes a text. One that does not decode is another program's, and is left as it is. */
export function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
