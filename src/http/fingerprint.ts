import { canonicalJson } from "../canonical-json.ts";
import { hash22 } from "../lock/submission.ts";

/** Equal for equal payloads of one id, unrelated between two ids. */
export function fingerprintFor(idHash: string, value: unknown): string {
  return hash22(`${idHash}:${canonicalJson(value)}`);
}

/** The content of a body without these of its top-level members. */
export function without(body: unknown, except: readonly string[] = []): unknown {
  const isObject = typeof body === "object" && body !== null && !ArrayBuffer.isView(body);
  // A body without such a member stays as it is: a copy would hide that it is a `Map`.
  if (!isObject || Array.isArray(body) || !except.some((name) => Object.hasOwn(body, name))) {
    return body;
  }
  return Object.fromEntries(Object.entries(body).filter(([name]) => !except.includes(name)));
}

/** Not by the framework: Koa's parser takes the square of the length, most others stop at 1 000. */
export function queryOf(url: string): unknown {
  const [, query = ""] = /\?(.*)/s.exec(url) ?? [];
  return fieldsOf(query) ?? query;
}

/** One value, or all of a name; `undefined` for a text that does not decode. */
export function fieldsOf(text: string): Record<string, string | string[]> | undefined {
  try {
    // As a whole: where a name or value does not decode, Node.js takes 5 µs for each of them.
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
