import {
  AnswerUnavailableError,
  InvalidValueError,
  LockContendedError,
  LockUnavailableError,
  SubmissionMismatchError,
} from "../errors.ts";
import { performance } from "../time.ts";
import { pauseBeforeRetry, within } from "../timers.ts";
import { atCaller, checkMs, checkOptionNames, invalidOption } from "../validation.ts";
import { type Attempt, type Lease, type LockedWork, UserLease } from "./lease.ts";
import { jsonOf, maxValueBytes } from "./record.ts";
import type { RepeatAttempt } from "./repeats.ts";
import type { LockRuntime } from "./runtime.ts";

/** Options of `once`. */
export interface OnceOptions {
  /**
   * How long to wait for the value while the same submission is in flight, in ms; 0 to 30 000.
   * Another submission's lock is an error at once, a silent Redis is one after `acquireTimeoutMs`.
   * @defaultValue 5 000
   */
  readonly waitMs?: number | undefined;
}

/** The value of a submission, and where it is from. */
export interface OnceResult<Value> {
  /**
   * The value that `work` returned, read back from JSON, for the first caller too: a `Date` is a
   * string, and a member that is `undefined` or a function is absent.
   */
  readonly value: Value;
  /** `false` where this call has run `work`, `true` where the value is from an earlier call. */
  readonly replayed: boolean;
  /** How long ago the value was kept, by the store's clock in milliseconds; 0 unless replayed. */
  readonly ageMs: number;
}

/**
 * Runs `work` under the lease of an attempt, or finds the value of an earlier run:
 *
 * ```
 * acquired ── work returns ────────────▶ its value, kept
 *      │ ──── work throws ─────────────▶ its error (or thrown redirect), and the lock is released
 *      └───── JSON cannot say it ──────▶ InvalidValueError, and recorded without a value
 * completed ───────────────────────────▶ the kept value, or AnswerUnavailableError
 * contended by the same submission, to the end of waitMs ─▶ LockContendedError
 * mismatched, contended, unavailable ──▶ an error at once
 * ```
 */
export async function once<Value>(
  runtime: LockRuntime,
  key: string,
  acquire: (waitMs: number) => Promise<RepeatAttempt>,
  options: OnceOptions,
  work: LockedWork<Value>,
): Promise<OnceResult<Value>> {
  checkOptionNames("once", options, ["waitMs"]);
  const { waitMs = 5_000 } = options;
  if (typeof work !== "function") throw invalidOption("work", "a function", work);
  const attempt = await acquire(waitMs);
  switch (attempt.outcome) {
    case "acquired":
      return await runWork(attempt.lease as UserLease, work, runtime.times.acquireTimeoutMs);
    case "unavailable":
      throw atCaller(attempt.cause);
    case "contended":
      throw contendedError(attempt, ownHolder(runtime, key));
    case "completed": {
      const { ageMs, answer } = attempt;
      if (answer.returned !== undefined) {
        // Repeats that waited together share the answer: copy the value, which a caller may change.
        const { value } = answer.returned;
        const own = value === undefined ? value : JSON.parse(JSON.stringify(value));
        return { value: own as Value, replayed: true, ageMs };
      }
      const why = answer.unreadable
        ? `its record is ${answer.unreadable}`
        : "its value was not kept";
      throw new AnswerUnavailableError(
        `this submission was completed before, and ${why}. It does not run again: look for its effect`,
      );
    }
    case "mismatched":
      throw new SubmissionMismatchError(
        "this submission's id was used with another fingerprint. Use a new id for other content",
        attempt.inFlight,
      );
    case "told":
      // The run, such as a guard's, has told an HTTP answer. That is not a value of `once`.
      throw contendedError({ expiresInMs: 0, sameSubmission: true, hasEnded: true }, "");
  }
}

function contendedError(
  {
    expiresInMs,
    hasEnded,
    isCooldown = false,
    sameSubmission = false,
  }: Omit<Extract<RepeatAttempt, { outcome: "contended" }>, "outcome">,
  ownHolder: string,
): LockContendedError {
  if (hasEnded) {
    return new LockContendedError(
      "the same submission was in flight, and has ended without a value. Check whether it took effect before you try again",
      expiresInMs,
      { sameSubmission, hasEnded },
    );
  }
  if (sameSubmission) {
    return new LockContendedError(
      `the same submission is in flight${ownHolder}. Try again in a moment: it does not run twice`,
      expiresInMs,
      { sameSubmission },
    );
  }
  const why = isCooldown
    ? "the user's last submission has left a cooldown that is not over: try again after expiresInMs"
    : `the user's lock has another holder${ownHolder}`;
  return new LockContendedError(why, expiresInMs, { isCooldown });
}

async function runWork<Value>(
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
  const json = jsonOf(
    returned,
    "The submission is recorded as done, without a value, and does not run again",
  );
  const isKept = typeof json === "string" && Buffer.byteLength(json) <= maxValueBytes;
  await within(acquireTimeoutMs, UserLease.completeWithValue(lease, isKept ? json : undefined));
  if (json instanceof InvalidValueError) throw json;
  return { value: json === "" ? undefined : JSON.parse(json), replayed: false, ageMs: 0 };
}

/** Options of `withLock`. */
export interface WithLockOptions {
  /**
   * How long to go on trying while the lock is contended or Redis does not answer, in milliseconds;
   * 0 to 600 000. For jobs only: a click that waits for an earlier click becomes a second order.
   * @defaultValue 0, one attempt
   */
  readonly waitMs?: number | undefined;
}

export async function withLock<Result>(
  runtime: LockRuntime,
  key: string,
  attempt: () => Promise<Attempt>,
  options: WithLockOptions,
  work: LockedWork<Result>,
): Promise<Result> {
  checkOptionNames("withLock", options, ["waitMs"]);
  const { waitMs = 0 } = options;
  checkMs("waitMs", waitMs, 0, 600_000);
  if (typeof work !== "function") throw invalidOption("work", "a function", work);
  const lease = await waitForLease(runtime, key, waitMs, attempt);
  try {
    return await work(lease);
  } finally {
    // `release` never rejects, so it cannot mask the result or the error of `work`.
    await lease.release();
  }
}

/** @throws the last attempt's error once `waitMs` is over; at once if misconfigured or closed. */
async function waitForLease(
  runtime: LockRuntime,
  key: string,
  waitMs: number,
  attempt: () => Promise<Attempt>,
): Promise<Lease> {
  if (waitMs === 0) return await tryUntil(performance.now(), runtime, key, attempt, () => true);
  const { lines } = runtime;
  const line = lines.get(key) ?? new Set();
  lines.set(key, line);
  const self = {};
  line.add(self);
  const isFirst = () => line.values().next().value === self;
  try {
    return await tryUntil(performance.now() + waitMs, runtime, key, attempt, isFirst);
  } finally {
    line.delete(self);
    if (line.size === 0) lines.delete(key);
  }
}

async function tryUntil(
  endsAt: number,
  runtime: LockRuntime,
  key: string,
  attempt: () => Promise<Attempt>,
  isFirst: () => boolean,
): Promise<Lease> {
  for (let round = 0; ; round++) {
    // Each waiter tries at its beginning and at its end. In between, only the first in line tries.
    while (round > 0 && !isFirst() && performance.now() < endsAt) {
      await pauseBeforeRetry(round, endsAt);
    }
    const came = await attempt();
    if (came.outcome === "acquired") return came.lease;
    const isOver = performance.now() >= endsAt;
    if (came.outcome === "unavailable") {
      if (isOver || !(came.cause instanceof LockUnavailableError)) throw atCaller(came.cause);
    } else if (isOver) {
      const { expiresInMs, isCooldown } = came;
      const other = `could not take the lock: it has another holder${ownHolder(runtime, key)}`;
      const why = isCooldown
        ? "could not take the lock: its cooldown is not over. Try again after expiresInMs"
        : other;
      throw new LockContendedError(why, expiresInMs, { isCooldown, key });
    }
    await pauseBeforeRetry(round, endsAt);
  }
}

/** A hint for an error, where this process is the holder: a request may wait for its own lease. */
function ownHolder({ watchdogs }: LockRuntime, key: string): string {
  const isOurs = watchdogs.armed().some((lease) => lease.isHeld && lease.command.key === key);
  return isOurs
    ? " in this process. If that is the request or the work that asks, use the lease it has: there is no second one"
    : "";
}
