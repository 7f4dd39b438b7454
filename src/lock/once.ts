import {
  AnswerUnavailableError,
  InvalidValueError,
  LockContendedError,
  SubmissionMismatchError,
} from "../errors.ts";
import { within } from "../timer-wheel.ts";
import { type LockedWork, type SubmissionAttempt, UserLease } from "./lease.ts";
import { jsonOf, maxValueBytes } from "./record.ts";
import type { LockRuntime } from "./runtime.ts";
import type { SubmissionIdentity } from "./submission.ts";
import { type LookUp, ownHolder, silentStore, waitForEnd } from "./waiting.ts";

/** Options of `once`. */
export interface OnceOptions {
  /**
   * How long to wait for the value while the same submission is in flight, in milliseconds; 0 to
   * 30 000. Another submission's lock and an absent Redis are not waited for.
   * @defaultValue 5 000
   */
  readonly waitMs?: number | undefined;
}

/** The value of a submission, and where it is from. */
export interface OnceResult<Value> {
  /**
   * What `work` returned, read back from JSON, for the first caller too: a `Date` is a string, and
   * a member that is `undefined` or a function is absent.
   */
  readonly value: Value;
  /** `false` where this call has run `work`, `true` where the value is that of an earlier call. */
  readonly replayed: boolean;
  /** How long ago the value was kept, by the store's clock in milliseconds; 0 unless replayed. */
  readonly ageMs: number;
}

/**
 * Runs `work` under the lease of an attempt, or finds the value of an earlier run:
 *
 * ```
 * acquired ── work returns ────────────▶ its value, kept
 *      │ ──── work throws ─────────────▶ its error, and the lock is released
 *      └───── JSON cannot say it ──────▶ InvalidValueError, and recorded without a value
 * completed ───────────────────────────▶ the kept value, or AnswerUnavailableError
 * contended by the same submission ────▶ looked up until it has ended or waitMs is over
 * mismatched, contended, unavailable ──▶ an error at once
 * ```
 *
 * @param look looks the submission up without taking the lock: a call that waits never runs `work`.
 * @param identity makes `lease.submission`; calls of one identity that wait share their looks.
 */
export async function once<Value>(
  runtime: LockRuntime,
  key: string,
  attempt: SubmissionAttempt,
  work: LockedWork<Value>,
  waitMs: number,
  look: () => Promise<LookUp>,
  identity: () => SubmissionIdentity,
): Promise<OnceResult<Value>> {
  switch (attempt.outcome) {
    case "acquired":
      UserLease.setSubmission(attempt.lease as UserLease, identity);
      return await run(attempt.lease as UserLease, work, runtime.times.acquireTimeoutMs);
    case "unavailable":
      throw attempt.cause;
    case "contended": {
      const { expiresInMs, isCooldown, sameSubmission } = attempt;
      if (sameSubmission === true) {
        const { acquireTimeoutMs } = runtime.times;
        const { id, fingerprint } = identity();
        const waitsFor = `${id} ${fingerprint}`;
        const seen = await waitForEnd(runtime, waitsFor, look, waitMs, acquireTimeoutMs);
        return resultOf<Value>(seen, expiresInMs);
      }
      const why = isCooldown
        ? "the user's last submission has left a cooldown that is not over"
        : `another submission of this user is in flight${ownHolder(runtime, key)}`;
      throw new LockContendedError(why, expiresInMs, { isCooldown });
    }
    default:
      return resultOf<Value>(attempt, 0);
  }
}

async function run<Value>(
  lease: UserLease,
  work: LockedWork<Value>,
  acquireTimeoutMs: number,
): Promise<OnceResult<Value>> {
  let returned: Value;
  try {
    returned = await work(lease);
  } catch (error) {
    await within(acquireTimeoutMs, lease.release());
    throw error;
  }
  const json = jsonOf(returned, "the submission is recorded as done, and does not run again");
  const isKept = typeof json === "string" && Buffer.byteLength(json) <= maxValueBytes;
  const completed = UserLease.completeWithValue(lease, isKept ? json : undefined);
  await within(acquireTimeoutMs, completed);
  if (json instanceof InvalidValueError) throw json;
  const value = json === "" ? undefined : JSON.parse(json);
  return { value, replayed: false, ageMs: 0 };
}

function resultOf<Value>(found: LookUp, expiresInMs: number): OnceResult<Value> {
  switch (found.outcome) {
    case "completed": {
      const { ageMs, answer } = found;
      if (answer.returned !== undefined) {
        return { value: answer.returned.value as Value, replayed: true, ageMs };
      }
      throw new AnswerUnavailableError(
        "this submission was completed before, and its value was not kept. It does not run again: look for its effect",
      );
    }
    case "mismatched":
      throw new SubmissionMismatchError(
        "this submission's id was used with another fingerprint. Use a new id for other content",
        found.inFlight,
      );
    case "none":
      throw new LockContendedError(
        "the same submission was in flight, and has ended without a value. Look for its effect before you try again",
        0,
        { sameSubmission: true, hasEnded: true },
      );
    case "in-flight":
      throw new LockContendedError(
        "the same submission is in flight. Try again in a moment: it does not run twice",
        expiresInMs,
        { sameSubmission: true },
      );
    case "unknown":
      throw silentStore();
  }
}
