import type { AcquireReply, Inspection, LockTimes, SubmissionHashes } from "../lock/store.ts";

/** What a key of the MemoryStore holds: a lease, or what one has left. Times by the monotonic clock. */
export interface Entry {
  readonly state: "held" | "freed" | "cooldown";
  readonly ownerId: string;
  readonly fencingToken: number;
  readonly submission: SubmissionHashes | undefined;
  readonly times: LockTimes;
  readonly holder: string;
  readonly takenAt: number;
  /** Who has freed it, and why. */
  readonly by: string;
  readonly reason: string;
  expiresAt: number;
}

/** In a record, behind the version of its layout. */
const fingerprintAt = 1;
const ownerIdAt = 23;
const noFingerprint = "-".repeat(22);

export function isOwned(entry: Entry, ownerId: string): boolean {
  return entry.ownerId === ownerId && entry.state === "held";
}

/** Whether the record was written on behalf of the owner id. */
export function isRecordOf(ownerId: string, record: string): boolean {
  return record.startsWith(ownerId, ownerIdAt);
}

export function completedOrMismatched(
  record: string,
  submission: SubmissionHashes | undefined,
  storeTimeMs: number,
): AcquireReply {
  const fingerprint = record.slice(fingerprintAt, ownerIdAt);
  return differs(fingerprint, submission?.fingerprint)
    ? { kind: "mismatched", inFlight: false, storeTimeMs }
    : { kind: "completed", record, storeTimeMs };
}

export function contendedOrMismatched(
  { expiresAt, state, submission: held }: Entry,
  submission: SubmissionHashes | undefined,
  storeTimeMs: number,
): AcquireReply {
  const isSame = state === "held" && submission !== undefined && held?.id === submission.id;
  if (isSame && differs(held.fingerprint, submission.fingerprint)) {
    return { kind: "mismatched", inFlight: true, storeTimeMs };
  }
  const expiresInMs = Math.ceil(expiresAt - storeTimeMs);
  const isCooldown = state === "cooldown";
  return { kind: "contended", expiresInMs, sameSubmission: isSame, isCooldown, storeTimeMs };
}

/** Two fingerprints are compared only where both are there. */
function differs(one: string, other: string | undefined): boolean {
  return one !== other && one !== noFingerprint && other !== noFingerprint;
}

export function inspectionOf(entry: Entry, now: number): Inspection {
  const { by, expiresAt, holder, ownerId, reason, state, takenAt, times } = entry;
  const id = ownerId.slice(0, 8);
  const expiresInMs = Math.ceil(expiresAt - now);
  if (state === "cooldown") return { state, id, expiresInMs };
  if (state === "freed") return { state, id, by, reason, expiresInMs };
  const heldMs = Math.floor(now - takenAt);
  const renewedMs = Math.max(0, times.ttlMs - expiresInMs);
  const endsInMs = Math.max(0, times.maxHoldMs - heldMs);
  return { state, id, holder, heldMs, renewedMs, expiresInMs, endsInMs };
}
