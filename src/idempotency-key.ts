/** The `Idempotency-Key` of a request, as {@link parseIdempotencyKey} reads it. */
export type IdempotencyKey =
  | { readonly kind: "missing" }
  /** `why` is a sentence for the client, which does not repeat the header. */
  | { readonly kind: "invalid"; readonly why: string }
  | { readonly kind: "key"; readonly key: string };

const invalidKey: IdempotencyKey = {
  kind: "invalid",
  why: "Send one key of 1 to 255 printable ASCII characters, in double quotes or without space, double quote, comma and semicolon.",
};

/** A String of RFC 8941, section 3.3.3, and nothing after it. */
const quotedKey = /^"((?:[ !#-[\]-~]|\\["\\])*)"$/;

/** Printable ASCII without space, double quote, comma and semicolon. */
const bareKey = /^[!#-+\--:<-~]+$/;

/**
 * Reads the header `Idempotency-Key` as the guards do. draft-ietf-httpapi-idempotency-key-header-07,
 * section 2.1, wants a String of RFC 8941 (`"8e03"`, with its quotes); nearly all clients send the
 * bare text. Both spellings are one key.
 *
 * @example
 * ```ts
 * const header = parseIdempotencyKey(request.headersDistinct["idempotency-key"]);
 * if (header.kind !== "key") throw new Error("400");
 * await lock.once(user.id, { id: `pay:${header.key}` }, () => pay(payment));
 * ```
 *
 * @param lines the header's lines as they were sent, such as in Node's `headersDistinct`, or the
 * only line. Joined by a comma, as in `headers`, the lines `"a` and `b"` would read as one key.
 */
export function parseIdempotencyKey(
  lines?: string | readonly string[] | null | undefined,
): IdempotencyKey {
  const [line, ...more] = typeof lines === "string" ? [lines] : (lines ?? []);
  if (line === undefined) return { kind: "missing" };
  // Tests the untrimmed line, because trim() also removes spaces that are not ASCII.
  if (more.length > 0 || /[^\t -~]/.test(line)) return invalidKey;
  const text = line.trim();
  if (text === "") return { kind: "missing" };
  const key = quotedKey.exec(text)?.[1]?.replace(/\\(.)/g, "$1") ?? bareKey.exec(text)?.[0] ?? "";
  return key === "" || key.length > 255 ? invalidKey : { kind: "key", key };
}
