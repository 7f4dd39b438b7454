import { InvalidUserIdError } from "../errors.ts";
import { describe, warnOnce } from "../validation.ts";

/** The id of a user. `42`, `42n` and `"42"` are the same user. */
export type UserId = string | number | bigint;

/** The longest user id, in UTF-16 code units before encoding. */
const maxIdLength = 200;

const plainId = /^[A-Za-z0-9\-._~@]+$/;

export const mayBeInId: RegExp = /[A-Za-z0-9\-._~@%]/;

/** Finds where a key differs from `encodeURIComponent`: `!*'()` are encoded, and `@` is not. */
const leftOver = /[!*'()]|%40/g;

const suspicious: ReadonlySet<string> = new Set(["undefined", "null", "NaN", "[object Object]"]);

/**
 * The key that locks a user: the prefix and the encoded user id. So two different ids, and two
 * different prefixes of locks, never share a key, and no id can smuggle a brace, a colon or a line
 * end into it. A shop's `keyOf` returns the whole key instead: there the shop must ensure this.
 */
export function submitKey(
  keyPrefix: string,
  userId: UserId,
  keyOf?: (userId: string) => string,
): string {
  let id = userId;
  switch (typeof id) {
    case "string":
      if (id.length === 0) throw invalid("an empty string");
      if (id.length > maxIdLength) throw invalid(`a string of ${id.length} characters`);
      // Warns and does not refuse: the text may be a login name.
      if (suspicious.has(id)) {
        warnOnce(
          "SUBMIT_LOCK_SUSPICIOUS_USER_ID",
          `userId: got the text ${JSON.stringify(id)}, which String(…) makes of a missing value, of NaN or of an object: such users would all share one lock and keep each other out. Pass undefined for a request without a user, and the id itself for one with a user`,
        );
      }
      break;
    case "bigint":
      id = String(id);
      if (id.length > maxIdLength) throw invalid(`a bigint of ${id.length} digits`);
      break;
    case "number":
      if (Number.isInteger(id) && !Number.isSafeInteger(id)) throw invalid("an unsafe integer");
      if (!Number.isInteger(id)) throw invalid(Number.isFinite(id) ? "a fraction" : String(id));
      id = String(id);
      break;
    default:
      throw invalid(describeWrong(id));
  }
  return keyOf === undefined ? keyPrefix + (plainId.test(id) ? id : encodeKeyPart(id)) : keyOf(id);
}

/** Percent-encodes all but ASCII letters, digits and `-._~@`. @throws for a lone surrogate. */
export function encodeKeyPart(text: string): string {
  let encoded: string;
  try {
    encoded = encodeURIComponent(text);
  } catch {
    throw invalid("a string with a lone surrogate");
  }
  return encoded.replace(leftOver, (match) =>
    match === "%40" ? "@" : `%${match.charCodeAt(0).toString(16).toUpperCase()}`,
  );
}

function describeWrong(userId: unknown): string {
  if (typeof userId === "symbol" || typeof userId === "boolean") return `a ${typeof userId}`;
  if (typeof userId !== "object" || userId === null || Array.isArray(userId)) {
    return describe(userId);
  }
  // MongoDB's ObjectId has a text that is the id; an ordinary object has "[object Object]".
  const { toString: textOf } = userId;
  return textOf === undefined || textOf === Object.prototype.toString
    ? "an object: pass the id that it holds"
    : "an object: pass String(…) of it, if that is the id";
}

// `came` has the kind and the fault and never the value, which may be long and names a person.
function invalid(came: string): InvalidUserIdError {
  return new InvalidUserIdError(
    `userId: expected a string of 1 to ${maxIdLength} characters, a safe integer or a bigint, got ${came}`,
  );
}
