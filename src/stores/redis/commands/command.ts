import type { LockCommand, NoAnswer } from "../../../lock/store.ts";

/** At 2 to 3 µs a key, a full call holds Redis, and all its clients, for 0.2 to 0.3 ms. */
export const maxEntries = 100;

/** A record may have 1 MiB and more, so a call has at most this many of them. */
export const maxRecords = 16;

type Argument = string | number | Uint8Array;

/** The part of a call that is equal for all its entries. */
export interface CallSettings {
  /** The command of the first entry: all entries share its times and holder. */
  readonly command: LockCommand;
  /** The deadline by Redis' clock, in whole milliseconds. */
  readonly deadlineMs: number;
  /** The highest fencing token or clock that was heard from the node, in microseconds. */
  readonly floorUs: number;
}

export interface EntryReply {
  readonly redisTimeMs: number;
  /** For an acquire, the token that the locks taken by this call have; 0 for other commands. */
  readonly fencingToken: number;
  readonly code: number | string | Buffer;
}

/** How a command is written for many requests, and how one entry of its reply is read. */
export interface Command<Request, Reply> {
  readonly script: string;
  /** The script in its {@link gatheredForm}; a command without it is never gathered by node. */
  readonly gatheredScript?: string;
  /** How many numbers the reply begins with: the clock, and for an acquire a token; 1 by default. */
  readonly headLength?: 2;
  /** At most so many entries are in a call; 100 by default. */
  readonly maxEntries?: number;
  /** The texts of its replies may be bytes that are not UTF-8. */
  readonly repliesBytes?: true;
  /** Returns the ARGV that all entries of a call share, before their own. @defaultValue none */
  head?(settings: CallSettings): Argument[];
  add(
    request: Request,
    keys: string[],
    args: Argument[],
    recordKey: (command: LockCommand) => string,
  ): void;
  read(reply: EntryReply): Reply | NoAnswer;
}

/** Returns a script's text as it is sent: without comments, indentation and empty lines. */
export function sent(script: string): string {
  return script
    .split("\n")
    .map((line) => line.replace(/--.*$/, "").trim())
    .filter((line) => line !== "")
    .join("\n");
}

/**
 * A command's reply begins with Redis' own clock in ms, read before its first write (rules 6 and
 * 12). A refusal (a missing permission, no memory, a replica) is an error of its own entry: what
 * only reads is answered beside it. Where it is all that a call has, and not in a
 * {@link gatheredForm}, it is the call's, so that the client sees it as well.
 */
export const common: string = /* lua */ `
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local answered = false
local function failed(reply)
  return type(reply) == 'table' and reply.err ~= nil
end
-- Whether the key holds another type than a string, which is an answer and not an error.
local function odd(reply)
  return failed(reply) and string.find(reply.err, 'WRONGTYPE', 1, true)
end
`;

/**
 * The end of the loop over the entries, and of the script. No entry ends with an error after a write
 * (rule 23), so where no entry is answered, nothing was written.
 * @param headLength how many numbers the replies begin with.
 */
export function endOfEntries(headLength: number): string {
  return `replies[i + ${headLength}] = reply
answered = answered or not failed(reply)
end
${failsTheCall}return replies
`;
}

const failsTheCall = "if not answered then\nreturn replies[#replies]\nend\n";

/** Rule 23: the script without declared keys. ARGV ends with the keys, and then their number. */
export function gatheredForm(script: string): string {
  return `local KEYS = {}
local count = tonumber(ARGV[#ARGV])
for i = 1, count do
KEYS[i] = ARGV[#ARGV - count - 1 + i]
end
${script.replace(failsTheCall, "")}`;
}
