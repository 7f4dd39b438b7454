import type { Attributes } from "@opentelemetry/api";

/** The names of everything that is told of a lock beside a number. None of them is about a user. */
export const KEY_PREFIX = "submit_lock.key_prefix";
export const OUTCOME = "submit_lock.outcome";
export const CONFIRMED = "submit_lock.confirmed";
export const REASON = "submit_lock.reason";
export const COPIES = "submit_lock.copies";
export const FENCING_TOKEN = "submit_lock.fencing_token";
const ERROR_TYPE = "error.type";

/** The stable code of an error of this package, such as `SUBMIT_LOCK_UNAVAILABLE`; never its message. */
export function errorType(cause: Error | undefined): Attributes {
  if (cause === undefined) return {};
  const { code } = cause as { code?: unknown };
  return { [ERROR_TYPE]: typeof code === "string" ? code : "_OTHER" };
}
