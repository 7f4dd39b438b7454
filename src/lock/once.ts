import {
  AnswerUnavailableError,
  InvalidValueError,
  LockContendedError,
  LockUnavailableError,
  SubmissionMismatchError,
} from "../errors.ts";
import { within } from "../within.ts";
import { closedAttempt, type SubmissionAttempt, UserLease } from "./lease.ts";
import type { LookUp } from "./on-call.ts";
import type { LockRuntime } from "./runtime.ts";
import type { LockedWork } from "./submit-lock.ts";
import { pauseBeforeRetry } from "./with-lock.ts";

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

/** The longest value that is kept: 1 MiB of JSON in UTF-8. */
const maxValueBytes = 1_048_576;

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
 */
export async function once<Value>(
  runtime: LockRuntime,
  attempt: SubmissionAttempt,
  work: LockedWork<Value>,
  waitMs: number,
  look: () => Promise<LookUp>,
): Promise<OnceResult<Value>> {
  switch (attempt.outcome) {
    case "acquired":
      return await run(attempt.lease as UserLease, work, runtime.times.acquireTimeoutMs);
    case "unavailable":
      throw attempt.cause;
    case "contended": {
      if (attempt.sameSubmission === true) {
        return resultOf<Value>(await waitForEnd(runtime, attempt.expiresInMs, waitMs, look));
      }
      const { expiresInMs, isCooldown } = attempt;
      const why = isCooldown
        ? "the user's last submission has left a cooldown that is not over"
        : "another submission of this user is in flight";
      throw new LockContendedError(why, expiresInMs, { isCooldown });
    }
    default:
      return resultOf<Value>(attempt);
  }
}

/** How a submission ended. */
type Ended = Extract<LookUp, { outcome: "none" | "completed" | "mismatched" }>;

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
  const json = jsonOf(returned);
  const isKept = typeof json === "string" && Buffer.byteLength(json) <= maxValueBytes;
  const completed = UserLease.completeWithValue(lease, isKept ? json : undefined);
  await within(acquireTimeoutMs, completed);
  if (json instanceof InvalidValueError) throw json;
  const value = json === "" ? undefined : JSON.parse(json);
  return { value, replayed: false, ageMs: 0 };
}

/** The value as JSON: `""` for `undefined`, and an error for a value that JSON cannot say. */
function jsonOf(value: unknown): string | InvalidValueError {
  if (value === undefined) return "";
  let cause: unknown;
  try {
    const json: string | undefined = JSON.stringify(value);
    if (json !== undefined) return json;
  } catch (error) {
    cause = error;
  }
  const advice = "Return plain data: the submission is recorded as done, and does not run again";
  return new InvalidValueError(`work returned a value that JSON cannot say. ${advice}`, { cause });
}

/**
 * @param expiresInMs of the lock that the submission held when it was met.
 * @throws LockContendedError once `waitMs` is over, LockClosedError, and LockUnavailableError where
 * no look-up is answered for `acquireTimeoutMs`, or the last one.
 */
async function waitForEnd(
  runtime: LockRuntime,
  expiresInMs: number,
  waitMs: number,
  look: () => Promise<LookUp>,
): Promise<Ended> {
  const endsAt = performance.now() + waitMs;
  let unansweredSince: number | undefined;
  for (let round = 0; performance.now() < endsAt; round++) {
    await pauseBeforeRetry(round, endsAt);
    const lookedAt = performance.now();
    const seen = await look();
    if (seen.outcome === "unknown") unansweredSince ??= lookedAt;
    else if (seen.outcome === "in-flight") unansweredSince = undefined;
    else return seen;
    if (runtime.isDrained) throw closedAttempt().cause;
    // One lost reply is not an outage. An absent store is waited for as long as by an acquire.
    const silentMs = performance.now() - (unansweredSince ?? Number.POSITIVE_INFINITY);
    if (silentMs >= runtime.times.acquireTimeoutMs) break;
  }
  if (unansweredSince !== undefined) {
    throw new LockUnavailableError("the store did not say whether the same submission has ended");
  }
  const why = "the same submission is in flight. Try again in a moment: it does not run twice";
  throw new LockContendedError(why, expiresInMs, { sameSubmission: true });
}

/** @throws LockContendedError, SubmissionMismatchError or AnswerUnavailableError without a value. */
function resultOf<Value>(ended: Ended): OnceResult<Value> {
  switch (ended.outcome) {
    case "completed": {
      const { ageMs, answer } = ended;
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
        ended.inFlight,
      );
    case "none":
      throw new LockContendedError(
        "the same submission was in flight, and has ended without a value. Look for its effect before you try again",
        0,
        { sameSubmission: true, hasEnded: true },
      );
  }
}
