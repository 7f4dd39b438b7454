import type {
  AcquireReply,
  LockCommand,
  LockTimes,
  NoAnswer,
  OwnedReply,
} from "../../lock/store.ts";
import { acquireReply, ownedReply } from "./replies.ts";
import { acquireScript, extendScript, releaseScript } from "./scripts.ts";

/** How one of the three commands is written for many keys, and how one entry of its reply is read. */
export interface Command<Reply> {
  readonly script: string;
  /** ARGV. All the commands are of one lock, and so share their times. */
  args(commands: readonly LockCommand[], times: LockTimes, deadlineMs: number): (string | number)[];
  reply(code: number, storeTimeMs: number): Reply | NoAnswer;
}

export const acquireCommand: Command<AcquireReply> = {
  script: acquireScript,
  args(commands, { ttlMs, maxHoldMs, acquireTimeoutMs }, deadlineMs) {
    const args: (string | number)[] = [deadlineMs, 2 * acquireTimeoutMs, maxHoldMs];
    for (const { ownerId } of commands) args.push(ownerId, ttlMs);
    return args;
  },
  reply: acquireReply,
};

export const extendCommand: Command<OwnedReply> = {
  script: extendScript,
  args(commands, { ttlMs }) {
    const args: (string | number)[] = [];
    for (const { ownerId } of commands) args.push(ownerId, ttlMs);
    return args;
  },
  reply: ownedReply,
};

export const releaseCommand: Command<OwnedReply> = {
  script: releaseScript,
  args: (commands) => commands.map(({ ownerId }) => ownerId),
  reply: ownedReply,
};
