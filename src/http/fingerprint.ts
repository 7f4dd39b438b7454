import { canonicalJson } from "../canonical-json.ts";
import { hash22 } from "../lock/submission.ts";

/** Hashes a submission's content with its id: equal content of two ids has two fingerprints. */
export function fingerprintFor(idHash: string, value: unknown): string {
  return hash22(`${idHash}:${canonicalJson(value)}`);
}

/** Returns a body without the top-level members that `except` names. */
export function without(body: unknown, except: readonly string[] = []): unknown {
  const isObject = typeof body === "object" && body !== null && !ArrayBuffer.isView(body);
  // Do not copy a body without such members: the copy of a `Map` would be an empty object.
  if (!isObject || Array.isArray(body) || !except.some((name) => Object.hasOwn(body, name))) {
    return body;
  }
  return Object.fromEntries(Object.entries(body).filter(([name]) => !except.includes(name)));
}

/** Parses a URL's query. Koa's parser takes quadratic time, most others stop at 1 000 fields. */
export function queryOf(url: string): unknown {
  const [, query = ""] = /\?(.*)/s.exec(url) ?? [];
  return fieldsOf(query) ?? query;
}

/** Parses a form: a repeated name has a list. `undefined` for an invalid percent encoding. */
export function fieldsOf(text: string): Record<string, string | string[]> | undefined {
  try {
    // Refuse an invalid text first: `URLSearchParams` takes 5 µs for each invalid name or value.
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
