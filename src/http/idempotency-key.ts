/** What the `Idempotency-Key` header of a request says. */
export type IdempotencyKey =
  | { readonly kind: "missing" }
  /** `why` is a predicate for "The Idempotency-Key header …", and never holds the value. */
  | { readonly kind: "invalid"; readonly why: string }
  /** 1 to 255 characters of printable ASCII. */
  | { readonly kind: "key"; readonly key: string };

const maxLength = 255;

/** A String of RFC 8941, section 3.3.3, and nothing behind it. */
const quoted = /^"((?:[ !#-[\]-~]|\\["\\])*)"$/;

/** Printable ASCII without space, double quote, comma and semicolon. */
const bare = /^[!#-+\--:<-~]+$/;

/**
 * Reads the `Idempotency-Key` header. draft-ietf-httpapi-idempotency-key-header-07, section 2.1,
 * wants an Item of RFC 8941 that is a String (`"8e03978e"`, with its quotes); nearly all clients
 * send the bare text. Both are accepted, and both spellings are one key. Empty is missing; a list,
 * parameters, more than one line, more than 255 characters or anything but printable ASCII is
 * invalid.
 *
 * @param lines the header's lines as they came, one element each. Not their joined form: joined
 * with a comma, the lines `"a` and `b"` would read as one key.
 */
export function parseIdempotencyKey(lines: readonly string[]): IdempotencyKey {
  const [line] = lines;
  if (line === undefined) return { kind: "missing" };
  if (lines.length > 1) return invalid(`came ${lines.length} times`);
  const text = line.trim();
  // The whole line, because trim() also removes spaces that are not ASCII.
  if (/[^\t -~]/.test(line) || text.includes("\t")) {
    return invalid("holds a character that is not printable ASCII");
  }
  if (text === "") return { kind: "missing" };
  const key = quoted.exec(text)?.[1]?.replace(/\\(.)/g, "$1") ?? bare.exec(text)?.[0];
  if (key === undefined) return invalid(whyUnreadable(text));
  if (key === "") return invalid("is an empty string");
  if (key.length > maxLength) return invalid(`is longer than ${maxLength} characters`);
  return { kind: "key", key };
}

function invalid(why: string): IdempotencyKey {
  return { kind: "invalid", why };
}

function whyUnreadable(text: string): string {
  const isQuoted = text.startsWith('"');
  const string = isQuoted ? /^"(?:[^"\\]|\\["\\])*"/.exec(text)?.[0] : "";
  if (string === undefined) {
    return 'begins with a double quote, but is no string of RFC 8941: it is not closed, or holds an escape other than \\" and \\\\';
  }
  // What follows the string; without quotes, all of it.
  const rest = text.slice(string.length).trim();
  const odd = isQuoted ? rest[0] : /[,;" ]/.exec(rest)?.[0];
  if (odd === ",") return "is a list";
  if (odd === ";") return "has parameters";
  if (isQuoted) return "goes on after its closing quote";
  return odd === '"' ? "holds a double quote" : "holds a space without being quoted";
}
