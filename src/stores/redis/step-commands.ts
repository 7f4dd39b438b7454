import type { AcquireReply, CompleteReply, LockRequest } from "../../lock/store.ts";
import {
  acquireOnceCommand,
  acquireReply,
  addSubmission,
  type Command,
  completeReply,
  lookUpCommand,
  maxRecords,
} from "./commands.ts";
import { acquireStepScript } from "./scripts/acquire.ts";
import { lookScript, recordScript } from "./scripts/record.ts";
import type { LookReply, RecordRequest } from "./two-steps.ts";

/** Takes the lock and does not look at the record. */
export const acquireStepCommand: Command<LockRequest<AcquireReply>, AcquireReply> = {
  ...acquireOnceCommand,
  script: acquireStepScript,
  maxEntries: 1,
  add: addSubmission,
};

/** The same without taking it. */
export const lookUpStepCommand: Command<LockRequest<AcquireReply>, AcquireReply> = {
  ...acquireStepCommand,
  head: lookUpCommand.head,
};

export const lookCommand: Command<LockRequest<LookReply>, LookReply> = {
  script: lookScript,
  headLength: 1,
  maxEntries: maxRecords,
  head: () => [],
  add: ({ command }, keys, args, recordKey) => {
    keys.push(recordKey(command));
    args.push(command.submission?.fingerprint ?? "");
  },
  read: (reply) => (reply.code === 0 ? { kind: "none" } : acquireReply(reply)),
};

/** Writes the record and does not look at the lock. */
export const recordCommand: Command<RecordRequest, CompleteReply> = {
  script: recordScript,
  headLength: 1,
  maxEntries: maxRecords,
  head: () => [],
  add: ({ command, record, expiresAtMs }, keys, args, recordKey) => {
    keys.push(recordKey(command));
    args.push(command.ownerId, record, expiresAtMs);
  },
  read: completeReply,
};
