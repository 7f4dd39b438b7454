/**
 * Errors carry a brand and a `code`, because `instanceof` fails as soon as two copies of the package
 * meet. Those that may end a request carry `status`, `statusCode` and `expose` as well, which the
 * error handlers of Express and Koa read: 409 if another holder has the lock, 503 if the holder
 * is not known.
 */
const brand = Symbol.for("submit-lock.error");

/** The stable codes of every error of this package. */
export type SubmitLockErrorCode =
  | "SUBMIT_LOCK_INVALID_OPTION"
  | "SUBMIT_LOCK_INVALID_USER_ID"
  | "SUBMIT_LOCK_CONTENDED"
  | "SUBMIT_LOCK_UNAVAILABLE"
  | "SUBMIT_LOCK_MISCONFIGURED"
  | "SUBMIT_LOCK_CLOSED"
  | "SUBMIT_LOCK_LOST"
  | "SUBMIT_LOCK_ANSWERED_TWICE"
  | "SUBMIT_LOCK_NO_FINGERPRINT";

/** The base of every error that this package makes. Recognise it with {@link isSubmitLockError}. */
export abstract class SubmitLockError extends Error {
  abstract readonly code: SubmitLockErrorCode;

  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    // Not enumerable, so that loggers do not print it.
    Object.defineProperty(this, brand, { value: true });
  }
}

/** A value that was passed as an option is not acceptable. The message names the option, what was expected and what came. */
export class InvalidOptionError extends SubmitLockError {
  override readonly name = "InvalidOptionError";
  readonly code = "SUBMIT_LOCK_INVALID_OPTION";
}

/** A user id that is neither a usable string, a safe integer nor a bigint. */
export class InvalidUserIdError extends SubmitLockError {
  override readonly name = "InvalidUserIdError";
  readonly code = "SUBMIT_LOCK_INVALID_USER_ID";
}

/** `withLock`: another holder kept the lock for all of `waitMs`. */
export class LockContendedError extends SubmitLockError {
  override readonly name = "LockContendedError";
  readonly code = "SUBMIT_LOCK_CONTENDED";
  readonly status = 409;
  readonly statusCode = 409;
  readonly expose = false;
  /** How long the other's lease has to live at most unless it is extended, in milliseconds. */
  readonly expiresInMs: number;

  constructor(message: string, expiresInMs: number) {
    super(message);
    this.expiresInMs = expiresInMs;
  }
}

/** The store could not be asked, or did not answer, within the bound. `cause` says why. */
export class LockUnavailableError extends SubmitLockError {
  override readonly name = "LockUnavailableError";
  readonly code = "SUBMIT_LOCK_UNAVAILABLE";
  readonly status = 503;
  readonly statusCode = 503;
  readonly expose = false;
}

/**
 * Redis denied what a lock needs (no permission, no authentication, no such command). Waiting does
 * not help, so an adapter hands this error to the application's error handler.
 */
export class LockMisconfiguredError extends SubmitLockError {
  override readonly name = "LockMisconfiguredError";
  readonly code = "SUBMIT_LOCK_MISCONFIGURED";
  readonly status = 503;
  readonly statusCode = 503;
  readonly expose = false;
}

/** The lock was closed: no new attempt is made. */
export class LockClosedError extends SubmitLockError {
  override readonly name = "LockClosedError";
  readonly code = "SUBMIT_LOCK_CLOSED";
  readonly status = 503;
  readonly statusCode = 503;
  readonly expose = false;
}

/**
 * Why a lease was lost: it could not be extended in time (`expired`), the key was gone or had
 * another owner at the next extend (`overtaken`), a person had taken the lock away with `free`
 * (`freed`), it was held for `maxHoldMs` (`max-hold`), or the lock was closed under it (`closed`).
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

  constructor(message: string, reason: LostReason) {
    super(message);
    this.reason = reason;
  }
}

/** An `onContended`, `onUnavailable` or `onAnonymous` function called `next` without an error. */
export class AnsweredTwiceError extends SubmitLockError {
  override readonly name = "AnsweredTwiceError";
  readonly code = "SUBMIT_LOCK_ANSWERED_TWICE";
}

/**
 * The payload of a submission cannot be compared with another one, and the handler did not run.
 *
 * - Status 500: no body parser stands before the guard, a file is neither in memory nor hashed, or
 *   `fingerprint` returned nothing, or something other than JSON.
 * - Status 415: no body parser takes the request's content type.
 * - Status 422: the payload is nested too deeply.
 */
export class NoFingerprintError extends SubmitLockError {
  override readonly name = "NoFingerprintError";
  readonly code = "SUBMIT_LOCK_NO_FINGERPRINT";
  /** Read by the error handlers of Express and Koa: whether the application or the client has to fix it. */
  readonly status: 500 | 422 | 415;
  readonly statusCode: 500 | 422 | 415;
  readonly expose = false;

  constructor(message: string, options: ErrorOptions & { readonly status?: 500 | 422 | 415 } = {}) {
    super(message, options);
    const { status = 500 } = options;
    this.status = status;
    this.statusCode = status;
  }
}

/** Every concrete error class, for a `switch` over `code`. */
export type AnySubmitLockError =
  | InvalidOptionError
  | InvalidUserIdError
  | LockContendedError
  | LockUnavailableError
  | LockMisconfiguredError
  | LockClosedError
  | LockLostError
  | AnsweredTwiceError
  | NoFingerprintError;

/** Returns whether a value is an error of this package, also of another copy of the package. */
export function isSubmitLockError(value: unknown): value is AnySubmitLockError {
  return typeof value === "object" && value !== null && brand in value;
}
