import type { LostReason } from "../../../errors.ts";
import type { OutlivedOrder, OutliveRequest, OwnedReply } from "../../../lock/store.ts";
import { type Command, common, sent } from "./command.ts";
import { kindOf } from "./release.ts";
import { decoded, outlivedKey } from "./values.ts";

/**
 * Rule 19: leaves the trace of an order that has outlived its lock, or its end.
 *
 * KEYS: one trace.
 * ARGV[1] the owner id; ARGV[2] the trace, or '' where the order has ended; ARGV[3] its life, in ms.
 *
 * Returns the clock and 1.
 */
const outliveScript: string = sent(/* lua */ `
${common}
local key = KEYS[1]
local ended = 'ended:' .. ARGV[1]
local held = redis.pcall('GET', key)
local reply = held
if ARGV[2] ~= '' then
  -- A copy that was on its way when the order ended writes nothing.
  if held ~= ended then
    reply = redis.pcall('SET', key, ARGV[2], 'PX', ARGV[3])
  end
elseif not held or failed(held) or string.sub(held, 1, 36) == ARGV[1] then
  reply = redis.pcall('SET', key, ended, 'PX', ARGV[3])
  -- A full Redis.
  if failed(reply) then
    reply = redis.pcall('DEL', key)
  end
end
return failed(reply) and reply or { now, 1 }
`);

export const outliveCommand: Command<OutliveRequest, OwnedReply> = {
  script: outliveScript,
  maxEntries: 1,
  add: ({ command, lifeMs, trace }, keys, args, recordKey) => {
    keys.push(outlivedKey(command, recordKey));
    const { holder, ownerId } = command;
    const { endedAtMs, reason, takenAtMs } = trace ?? {};
    const text = trace ? [ownerId, takenAtMs, endedAtMs, reason, holder].join(":") : "";
    args.push(ownerId, text, lifeMs);
  },
  read: kindOf({ 1: "done" }),
};

export function outlivedOf(trace: string, storeTimeMs: number): OutlivedOrder {
  const [, takenAtMs, endedAtMs, reason, holder = ""] = trace.split(":");
  const ago = (atMs: unknown) => Math.max(0, storeTimeMs - Number(atMs));
  const [takenMs, endedMs] = [ago(takenAtMs), ago(endedAtMs)];
  return { holder: decoded(holder), reason: reason as LostReason, takenMs, endedMs };
}
