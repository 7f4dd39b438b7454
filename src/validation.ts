import { types } from "node:util";
import { InvalidOptionError, type SubmitLockError } from "./errors.ts";

/** The longest `ttlMs`, and so the longest expiry of our locks and tombstones, in milliseconds. */
export const longestTtlMs = 300_000;

export const longestCooldownMs = 60_000;

export const longestRetainMs = 604_800_000;

/** The longest wait of a repeat for the end of the first run, in milliseconds. */
export const longestRepeatWaitMs = 30_000;

/** The longest name of a person in an audit line, in UTF-16 code units. */
export const longestBy = 64;

/** The reason why the record of a submission can neither be read nor written. */
export const notARecord =
  "the record's key has a value that submit-lock did not write. Delete it, or set another keyPrefix";

/** A user and a password, or parameters that may hold them, of a URL or a connection string. */
const mayHaveSecret = /:.*@|:\/\/.*\?|pass(word)?=/is;

/** Describes a value for a message: by its kind if it is long, an object or may hold a secret. */
export function describe(value: unknown): string {
  if (typeof value === "string") {
    if (value.length <= 60 && mayHaveSecret.test(value)) return "a URL";
    return value.length > 60 ? `a string of ${value.length} characters` : JSON.stringify(value);
  }
  if (typeof value === "function") return "a function";
  if (Array.isArray(value)) return "an array";
  if (typeof value === "object" && value !== null) return "an object";
  return String(value);
}

/** Also of another realm: under Jest, Node's errors are not instances of the global `Error`. */
export function isError(value: unknown): value is Error {
  return typeof value === "object" && (value instanceof Error || types.isNativeError(value));
}

/** Returns the text of a thrown value. `String` throws for an object without a prototype. */
export function textOfThrown(value: unknown): string {
  try {
    return String(value);
  } catch {
    return describe(value);
  }
}

export function invalidOption(name: string, expected: string, came: unknown): InvalidOptionError {
  return new InvalidOptionError(`${name}: expected ${expected}, got ${describe(came)}`);
}

/** Refuses unknown names, because a misspelt option would silently leave its default in place. */
export function checkOptionNames(owner: string, options: unknown, known: readonly string[]): void {
  if (typeof options !== "object" || options === null || Array.isArray(options)) {
    throw invalidOption(`${owner} options`, "an object", options);
  }
  for (const name of Object.keys(options)) {
    if (!known.includes(name)) {
      throw new InvalidOptionError(
        `${owner} options: expected ${known.length === 0 ? "none" : `only ${known.join(", ")}`}, got the unknown option ${describe(name)}`,
      );
    }
  }
}

export function checkMs(name: string, value: unknown, min: number, max: number): number {
  if (typeof value !== "number" || !Number.isInteger(value) || value < min || value > max) {
    throw invalidOption(name, `a whole number of milliseconds from ${min} to ${max}`, value);
  }
  return value;
}

export function hasMembers(value: unknown, members: readonly string[]): boolean {
  return typeof value === "object" && value !== null && members.every((name) => name in value);
}

const given = new Set<string>();

/** Emits a process warning only once for each code, because a cause repeats with every request. */
export function warnOnce(code: string, message: string): void {
  if (given.has(code)) return;
  given.add(code);
  try {
    process.emitWarning(message, { type: "SubmitLockWarning", code });
  } catch {
    // A logger that replaces `emitWarning` may fail: a lock must be released all the same.
  }
}

const own = new WeakSet<Error>();

/** An error whose message this package wrote, so that an HTTP client may read the message. */
export function ownError(message: string, cause?: Error): Error {
  const error = new Error(message, cause && { cause });
  own.add(error);
  return error;
}

/** Drops what a function of the application has returned: an unheard rejection ends the process. */
export function drop(returned: unknown): void {
  Promise.resolve(returned).catch(() => {});
}

/** Gives an error, which was made in a timer, the stack of the call that waits. */
export function atCaller(error: SubmitLockError): SubmitLockError {
  Error.captureStackTrace?.(error, atCaller);
  return error;
}

export function isOwn(error: Error): boolean {
  return own.has(error);
}
