import type {
  AnswerToStore,
  Lease,
  LockCommand,
  RecordBytes,
  Submission,
  SubmissionAttempt,
  SubmissionHashes,
  SubmitLock,
} from "../../src/index.ts";
import { decodeRecord, encodeRecord } from "../../src/lock/record.ts";
import { identify, resolveIdentity } from "../../src/lock/submission.ts";
import { freshUser } from "./ids.ts";
import { commandOf, leaseFrom } from "./locks.ts";

/** What a store knows a submission by; a new one unless an id is given. */
export function hashesOf(
  id: string = freshUser(),
  fingerprint?: string,
  user = "user",
): SubmissionHashes {
  const identity = identify(user, { id, fingerprint });
  return resolveIdentity({ identity }, 1_000, undefined).hashes;
}

/** A command of a new owner for a submission, on a new key unless one is given. */
export function onceOf(given: Partial<LockCommand> = {}): LockCommand {
  return commandOf({ submission: hashesOf(), ...given });
}

/** The record of this owner's answer. */
export function recordOf(command: LockCommand, body = "order 7"): string {
  const content = { status: 201, body };
  return String(encodeRecord({ ...command, identity: undefined }, content, 1_700_000_000_000));
}

export function bodyOf(record: RecordBytes): string | undefined {
  const { body } = decodeRecord(record, { key: "", submission: undefined }).answer;
  return body && Buffer.from(body).toString();
}

/** What the tests' orders are answered. */
export const answer: AnswerToStore = { status: 201, body: "order 7" };

/** One attempt for a submission of the user; all of a test are the same one unless it says so. */
export function submit(
  lock: SubmitLock,
  user: string,
  submission: Partial<Submission> = {},
): Promise<SubmissionAttempt> {
  return lock.acquire(user, { submission: { id: "cart 7", ...submission } });
}

/** As `leaseOf`: a machine that is too busy to answer within the attempt's budget is asked again. */
export function submissionOf(
  lock: SubmitLock,
  user: string,
  submission: Partial<Submission> = {},
): Promise<Lease> {
  return leaseFrom(() => submit(lock, user, submission));
}

/** The body of the answer that was found, or how else the attempt ended. */
export function foundBy(attempt: SubmissionAttempt): string | undefined {
  if (attempt.outcome !== "completed") return attempt.outcome;
  const { body } = attempt.answer;
  return body && Buffer.from(body).toString();
}

/** Where the record of a submission lies, for a client without a prefix. */
export function recordKey(lockKey: string, id = "cart 7"): string {
  return `{${lockKey}}:${hashesOf(id, undefined, userOf(lockKey)).id}`;
}

/** The user whose lock the key is. */
export function userOf(lockKey: string): string {
  return lockKey.slice(lockKey.lastIndexOf(":") + 1);
}

/** A record with another description: `s` is the status, `h` the headers. */
export function describedAnew<Described>(
  record: string,
  change: (of: Described) => Described,
): string {
  const end = 66 + Number(`0x${record.slice(60, 66)}`);
  const described = JSON.stringify(change(JSON.parse(record.slice(66, end))));
  const length = Buffer.byteLength(described).toString(16).padStart(6, "0");
  return record.slice(0, 60) + length + described + record.slice(end);
}
