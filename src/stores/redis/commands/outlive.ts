import type { LostReason } from "../../../errors.ts";
import type { OutlivedOrder, OutliveRequest, OwnedReply } from "../../../lock/store.ts";
import { type Command, common, sent } from "./command.ts";
import { kindOf } from "./release.ts";
import { decoded, outlivedKey } from "./values.ts";

/** In bytes: enough for some 20 orders of one user. The oldest traces are cut off. */
const longestTraces = 4_000;

/**
 * Rule 19: writes the trace of an order that has outlived its lock, or a note that the order has
 * ended, beside the traces of the user's other orders.
 *
 * KEYS: the lock, by which a sharding proxy finds the server that `inspect` asks; the traces.
 * ARGV[1] the owner id; ARGV[2] the trace, or '' where the order has ended; ARGV[3] ms to live:
 *   a longer life of the key stays, unless all its orders have ended.
 *
 * Returns the clock and 1.
 */
const outliveScript: string = sent(/* lua */ `
${common}
local key, owner = KEYS[2], ARGV[1]
local ended = owner .. ':ended'
local held = redis.pcall('GET', key)
local life = math.max(tonumber(ARGV[3]), redis.call('PTTL', key))
local trace = ARGV[2] == '' and ended or ARGV[2]
local kept, isAlone = '', true
for each in string.gmatch(type(held) == 'string' and held or '', '[^,]+') do
  if each == ended then
    -- A copy that was on its way when the order ended changes nothing.
    trace = ended
  elseif string.sub(each, 1, 36) ~= owner then
    kept = kept .. each .. ','
    isAlone = isAlone and string.sub(each, 37) == ':ended'
  end
end
if isAlone and trace == ended then
  life = ARGV[3]
end
local reply = redis.pcall('SET', key, string.sub(kept .. trace, -${longestTraces}), 'PX', life)
-- A full Redis refuses the SET. Where every order has ended, the key says nothing: delete it.
if failed(reply) and isAlone and trace == ended then
  reply = redis.pcall('DEL', key)
end
return failed(reply) and reply or { now, 1 }
`);

export const outliveCommand: Command<OutliveRequest, OwnedReply> = {
  script: outliveScript,
  maxEntries: 1,
  add: ({ command, lifeMs, trace }, keys, args, recordKey) => {
    keys.push(command.key, outlivedKey(command, recordKey));
    const { holder, ownerId } = command;
    const { endedAtMs, reason, takenAtMs } = trace ?? {};
    const text = trace ? [ownerId, takenAtMs, endedAtMs, reason, holder].join(":") : "";
    args.push(ownerId, text, lifeMs);
  },
  read: kindOf({ 1: "done" }),
};

/** Returns the orders in the value of a traces key that have not ended, the oldest first. */
export function outlivedOf(traces: string, storeTimeMs: number): OutlivedOrder[] {
  const ago = (atMs: unknown) => Math.max(0, storeTimeMs - Number(atMs));
  const parts = traces.split(",").map((trace) => trace.split(":"));
  return parts
    .filter(({ length }) => length === 5)
    .map(([, takenAtMs, endedAtMs, reason, holder = ""]) => {
      const [takenMs, endedMs] = [ago(takenAtMs), ago(endedAtMs)];
      return { holder: decoded(holder), reason: reason as LostReason, takenMs, endedMs };
    });
}
