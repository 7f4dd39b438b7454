import type { AcquireReply, LockTimes, NoAnswer, OwnedReply } from "../../lock/store.ts";
import { acquireReply, ownedReply } from "./replies.ts";
import { acquireScript, extendScript, releaseScript } from "./scripts.ts";

/** How one of the three commands is written for many keys, and how one entry of its reply is read. */
export interface Command<Reply> {
  readonly script: string;
  /** ARGV, with an owner id for each key. All are of one lock, and so share their times. */
  args(ownerIds: readonly string[], times: LockTimes, deadlineMs: number): (string | number)[];
  reply(code: number, storeTimeMs: number): Reply | NoAnswer;
}

export const acquireCommand: Command<AcquireReply> = {
  script: acquireScript,
  args: (ownerIds, { ttlMs, maxHoldMs, acquireTimeoutMs }, deadlineMs) => [
    deadlineMs,
    2 * acquireTimeoutMs,
    maxHoldMs,
    ttlMs,
    ...ownerIds,
  ],
  reply: acquireReply,
};

export const extendCommand: Command<OwnedReply> = {
  script: extendScript,
  args: (ownerIds, { ttlMs }) => [ttlMs, ...ownerIds],
  reply: ownedReply,
};

export const releaseCommand: Command<OwnedReply> = {
  script: releaseScript,
  args: (ownerIds) => [...ownerIds],
  reply: ownedReply,
};
