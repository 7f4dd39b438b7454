/**
 * Errors carry a brand and a `code`, because `instanceof` fails as soon as two copies of the
 * package meet. Most also carry `status`, `statusCode` and `expose`. The error handlers of Express
 * and Koa read these, and some write them: so each error has them as fields of its own.
 */
const errorBrand = Symbol.for("submit-lock.error");

/** The `code` of each subclass of {@link SubmitLockError}. The codes are stable. */
export type SubmitLockErrorCode =
  | "SUBMIT_LOCK_INVALID_OPTION"
  | "SUBMIT_LOCK_INVALID_USER_ID"
  | "SUBMIT_LOCK_CONTENDED"
  | "SUBMIT_LOCK_MISMATCHED"
  | "SUBMIT_LOCK_ANSWER_UNAVAILABLE"
  | "SUBMIT_LOCK_INVALID_VALUE"
  | "SUBMIT_LOCK_UNAVAILABLE"
  | "SUBMIT_LOCK_MISCONFIGURED"
  | "SUBMIT_LOCK_CLOSED"
  | "SUBMIT_LOCK_LOST"
  | "SUBMIT_LOCK_ANSWERED_TWICE"
  | "SUBMIT_LOCK_NO_FINGERPRINT"
  | "SUBMIT_LOCK_TRANSACTION_REQUIRED";

/** The codes by which a client recognises the errors that end a request. */
const refusalCodes: Readonly<Partial<Record<SubmitLockErrorCode, string>>> = {
  SUBMIT_LOCK_CONTENDED: "submit_contended",
  SUBMIT_LOCK_MISMATCHED: "idempotency_conflict",
  SUBMIT_LOCK_ANSWER_UNAVAILABLE: "idempotency_answer_unavailable",
  SUBMIT_LOCK_INVALID_VALUE: "idempotency_answer_unavailable",
  SUBMIT_LOCK_UNAVAILABLE: "submit_unavailable",
  SUBMIT_LOCK_MISCONFIGURED: "submit_unavailable",
  SUBMIT_LOCK_CLOSED: "submit_unavailable",
  SUBMIT_LOCK_LOST: "submit_lock_lost",
  SUBMIT_LOCK_NO_FINGERPRINT: "SUBMIT_LOCK_NO_FINGERPRINT",
};

/** The base of the server's error classes. Recognise them with {@link isSubmitLockError}. */
export abstract class SubmitLockError extends Error {
  abstract readonly code: SubmitLockErrorCode;

  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    // The brand is not enumerable, so that loggers do not print it.
    Object.defineProperty(this, errorBrand, { value: true });
  }

  /** The header `Submit-Lock-Code`, which the error handlers of the frameworks send. */
  get headers(): Readonly<Record<string, string>> | undefined {
    const { code, sameSubmission } = this as {
      code: SubmitLockErrorCode;
      sameSubmission?: boolean;
    };
    const refusal = sameSubmission === true ? "idempotency_in_flight" : refusalCodes[code];
    return refusal === undefined ? undefined : { "Submit-Lock-Code": refusal };
  }
}

/** An option or another argument is not acceptable. The message names it and acceptable values. */
export class InvalidOptionError extends SubmitLockError {
  override readonly name = "InvalidOptionError";
  readonly code = "SUBMIT_LOCK_INVALID_OPTION";
}

/** A user id that is not well-formed text, a safe integer or a bigint, of 1 to 200 characters. */
export class InvalidUserIdError extends SubmitLockError {
  override readonly name = "InvalidUserIdError";
  readonly code = "SUBMIT_LOCK_INVALID_USER_ID";
}

/** Details of a {@link LockContendedError}. */
export interface ContentionDetails {
  /** The lock or, with `SubmissionTable`, the row was held for this submission itself. */
  readonly sameSubmission?: boolean | undefined;
  /** There is no holder: the cooldown that the user's last lease left is not over. */
  readonly isCooldown?: boolean | undefined;
  /** The key of the lock, given by `withLock` alone. */
  readonly key?: string | undefined;
  /**
   * `once` has waited, and the submission has ended without a kept answer: its work has failed, its
   * process has died, or its lock was released. A new call may run: look for an effect first.
   */
  readonly hasEnded?: boolean | undefined;
}

/**
 * The key was not free: it had another holder or a cooldown, for example. `once` tries one time,
 * `withLock` until the end of `waitMs`. Or the same submission was in flight: `once` waited up to
 * `waitMs` for its end, `SubmissionTable` for its row.
 */
export class LockContendedError extends SubmitLockError {
  override readonly name = "LockContendedError";
  readonly code = "SUBMIT_LOCK_CONTENDED";
  readonly status = 409;
  readonly statusCode = 409;
  readonly expose = false;
  /**
   * How long the key lives unless extended, in ms; `Infinity` if the key is not a string; 0 with
   * `hasEnded`, and from `SubmissionTable`, where it is unknown.
   */
  readonly expiresInMs: number;
  /** The flag of {@link ContentionDetails}; `true` only from `once` and `SubmissionTable`. */
  readonly sameSubmission: boolean;
  /** The flag of {@link ContentionDetails}. */
  readonly isCooldown: boolean;
  /** The flag of {@link ContentionDetails}; `false` unless `once` says otherwise. */
  readonly hasEnded: boolean;
  /** The key of the lock, from `withLock`. The message leaves it out. */
  readonly key: string | undefined;

  constructor(message: string, expiresInMs: number, details: ContentionDetails = {}) {
    super(message);
    this.expiresInMs = expiresInMs;
    this.key = details.key;
    const { sameSubmission = false, isCooldown = false, hasEnded = false } = details;
    this.sameSubmission = sameSubmission;
    this.isCooldown = isCooldown;
    this.hasEnded = hasEnded;
  }
}

/** The submission was made before with another fingerprint: `work` of `once` did not run. */
export class SubmissionMismatchError extends SubmitLockError {
  override readonly name = "SubmissionMismatchError";
  readonly code = "SUBMIT_LOCK_MISMATCHED";
  readonly status = 422;
  readonly statusCode = 422;
  readonly expose = false;
  /** `true` if that submission is still being processed, `false` if it was completed. */
  readonly inFlight: boolean;

  constructor(message: string, inFlight: boolean) {
    super(message);
    this.inFlight = inFlight;
  }
}

/**
 * From `once`: the submission was completed before, and no value of it can be returned. The value
 * was above 1 MiB, not JSON, or left out in an outage; or the record has an answer of a guard or
 * `lease.complete`; or the record is unreadable. From `SubmissionTable`: a row was committed,
 * without a value or with a value that is not JSON.
 */
export class AnswerUnavailableError extends SubmitLockError {
  override readonly name = "AnswerUnavailableError";
  readonly code = "SUBMIT_LOCK_ANSWER_UNAVAILABLE";
  readonly status = 409;
  readonly statusCode = 409;
  readonly expose = false;
}

/**
 * From `once`: `work` returned a value that JSON cannot say, such as a BigInt, a circle or a
 * function. The submission is recorded as done, without a value, so it does not run again. From
 * `SubmissionTable`: let the error roll the transaction back, and nothing has happened.
 */
export class InvalidValueError extends SubmitLockError {
  override readonly name = "InvalidValueError";
  readonly code = "SUBMIT_LOCK_INVALID_VALUE";
  readonly status = 500;
  readonly statusCode = 500;
  readonly expose = false;
}

/**
 * The store gave no usable answer in time. `cause`, or its `cause`, is the store's error, if there
 * is one. The store's error may have a text of Redis or the system; `message` never has.
 */
export class LockUnavailableError extends SubmitLockError {
  override readonly name = "LockUnavailableError";
  readonly code = "SUBMIT_LOCK_UNAVAILABLE";
  readonly status = 503;
  readonly statusCode = 503;
  readonly expose = false;
}

/**
 * Redis refuses what a lock sends (no permission, a wrong password, no such command or database).
 * Waiting does not help: a guard passes this error to the application's error handler.
 */
export class LockMisconfiguredError extends SubmitLockError {
  override readonly name = "LockMisconfiguredError";
  readonly code = "SUBMIT_LOCK_MISCONFIGURED";
  readonly status = 503;
  readonly statusCode = 503;
  readonly expose = false;
}

/**
 * `close` was called: the lock takes no new work. In a message of `submit-lock:complete`: the time
 * of `close` was over before Redis had answered.
 */
export class LockClosedError extends SubmitLockError {
  override readonly name = "LockClosedError";
  readonly code = "SUBMIT_LOCK_CLOSED";
  readonly status = 503;
  readonly statusCode = 503;
  readonly expose = false;
}

/**
 * Why a lease was lost: it was not extended in time (`expired`), an extend found no key or another
 * value (`overtaken`) or the tombstone of `free` (`freed`), the lease could not be extended beyond
 * `maxHoldMs` (`max-hold`), or the `timeoutMs` of `close` were over (`closed`).
 */
export type LostReason = "expired" | "overtaken" | "freed" | "max-hold" | "closed";

/** The `reason` of an aborted `lease.signal`. */
export class LockLostError extends SubmitLockError {
  override readonly name = "LockLostError";
  readonly code = "SUBMIT_LOCK_LOST";
  readonly status = 503;
  readonly statusCode = 503;
  readonly expose = false;
  readonly reason: LostReason;
  /**
   * The key of the lock. The message leaves it out, because an error handler may show the message.
   */
  readonly key: string;

  constructor(message: string, reason: LostReason, key: string) {
    super(message);
    this.reason = reason;
    this.key = key;
  }
}

/** On Express: a function that answers (`onContended`, …) called `next` without an error. */
export class AnsweredTwiceError extends SubmitLockError {
  override readonly name = "AnsweredTwiceError";
  readonly code = "SUBMIT_LOCK_ANSWERED_TWICE";
}

/**
 * From a guard or `fingerprintOf`: a payload cannot be compared with an earlier one, or a guard finds
 * no id in it. The handler did not run.
 *
 * - Status 500: no body parser ran before the guard, or a parser left an object that contains
 *   itself; a file is neither in memory nor hashed; `fingerprint` returned neither JSON nor text
 *   nor bytes; on fetch, the body was read before the guard, or cannot be cloned.
 * - Status 415: a body parser skipped the content type, or none ran and it is neither JSON nor a form.
 * - Status 413: more than 1 000 files of a parser; on fetch, more than 1 MiB or 4 096 chunks.
 * - Status 422: the payload is nested deeper than 64 levels (a guard's body: 63), or has a number
 *   that is not finite.
 */
export class NoFingerprintError extends SubmitLockError {
  override readonly name = "NoFingerprintError";
  readonly code = "SUBMIT_LOCK_NO_FINGERPRINT";
  /** 500: the application has to fix it; 413, 415 and 422: the client. */
  readonly status: 500 | 422 | 415 | 413;
  readonly statusCode: 500 | 422 | 415 | 413;
  readonly expose = false;

  constructor(
    message: string,
    options: ErrorOptions & { readonly status?: 500 | 422 | 415 | 413 } = {},
  ) {
    super(message, options);
    const { status = 500 } = options;
    this.status = status;
    this.statusCode = status;
  }
}

/**
 * `SubmissionTable.once` of `submit-lock/sql`: its statements were not in one open transaction.
 * `once` got a pool, no BEGIN was sent, or the transaction ended within `work`. After a COMMIT, the
 * writes before the COMMIT stay, and no repeat runs. After a rollback, as by a deadlock that `work`
 * has caught, writes after the rollback may stay, and a repeat runs: look for these writes.
 */
export class TransactionRequiredError extends SubmitLockError {
  override readonly name = "TransactionRequiredError";
  readonly code = "SUBMIT_LOCK_TRANSACTION_REQUIRED";
  readonly status = 500;
  readonly statusCode = 500;
  readonly expose = false;
}

/** Every concrete error class, for a `switch` over `code`. */
export type AnySubmitLockError =
  | InvalidOptionError
  | InvalidUserIdError
  | LockContendedError
  | SubmissionMismatchError
  | AnswerUnavailableError
  | InvalidValueError
  | LockUnavailableError
  | LockMisconfiguredError
  | LockClosedError
  | LockLostError
  | AnsweredTwiceError
  | NoFingerprintError
  | TransactionRequiredError;

/** Returns whether a value is an error of this package, also of another copy of the package. */
export function isSubmitLockError(value: unknown): value is AnySubmitLockError {
  return typeof value === "object" && value !== null && errorBrand in value;
}
