import type { LockCommand, SubmissionHashes } from "../../src/index.ts";
import { decodeRecord, encodeRecord } from "../../src/lock/record.ts";
import { resolveSubmission } from "../../src/lock/submission.ts";
import { freshUser } from "./ids.ts";
import { commandOf } from "./locks.ts";

/** What a store knows a submission by; a new one unless an id is given. */
export function hashesOf(id: string = freshUser(), fingerprint?: string): SubmissionHashes {
  return resolveSubmission({ id, fingerprint }, 1_000).hashes;
}

/** A command of a new owner for a submission, on a new key unless one is given. */
export function onceOf(given: Partial<LockCommand> = {}): LockCommand {
  return commandOf({ submission: hashesOf(), ...given });
}

/** The record of this owner's answer. */
export function recordOf({ submission, ownerId }: LockCommand, body = "order 7"): string {
  if (submission === undefined) throw new Error("A record belongs to a submission.");
  return encodeRecord(submission.fingerprint, ownerId, { status: 201, body }, 1_700_000_000_000);
}

/** The body of a record. */
export function bodyOf(record: string): string | undefined {
  const body = decodeRecord(record)?.answer.body;
  return body && Buffer.from(body).toString();
}
