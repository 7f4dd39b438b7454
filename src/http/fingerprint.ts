import { canonicalJson } from "../canonical-json.ts";
import { hash22 } from "../lock/submission.ts";

/** Equal payloads of one id have equal fingerprints; those of two ids are unrelated. */
export function fingerprintFor(idHash: string, value: unknown): string {
  return hash22(`${idHash}:${canonicalJson(value)}`);
}

/** Leaves out these top-level members of a body. */
export function without(body: unknown, except: readonly string[] = []): unknown {
  const isObject = typeof body === "object" && body !== null && !ArrayBuffer.isView(body);
  // A body without such a member stays as it is: a copy would hide that it is a `Map`.
  if (!isObject || Array.isArray(body) || !except.some((name) => Object.hasOwn(body, name))) {
    return body;
  }
  return Object.fromEntries(Object.entries(body).filter(([name]) => !except.includes(name)));
}

/** Parses a query itself: Koa's parser takes quadratic time, most others stop at 1 000 fields. */
export function queryOf(url: string): unknown {
  const [, query = ""] = /\?(.*)/s.exec(url) ?? [];
  return fieldsOf(query) ?? query;
}

/** A name has one value or a list. Returns `undefined` for a text that does not decode. */
export function fieldsOf(text: string): Record<string, string | string[]> | undefined {
  try {
    // Decode the whole text first: Node.js takes 5 µs for each name or value that fails.
    decodeURIComponent(text);
  } catch {
    return undefined;
  }
  const values: Record<string, string | string[]> = Object.create(null);
  for (const [name, value] of new URLSearchParams(text)) {
    const earlier = values[name];
    if (earlier === undefined) values[name] = value;
    else if (Array.isArray(earlier)) earlier.push(value);
    else values[name] = [earlier, value];
  }
  return values;
}
