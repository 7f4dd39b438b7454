type Storage = Record<"getItem" | "setItem" | "removeItem", (...words: string[]) => string | null>;
/** A copy of the ids by name, for pages whose `sessionStorage` is full, forbidden or missing. */
const memory = new Map<string, string>();
/** Ids that were made by this page, and under which no order can be placed yet. */
export const unused: Set<string> = new Set();
/**
 * The form of each id. The references are weak, because a router drops forms of a page that stays.
 */
export const owners: Map<string, WeakRef<object>> = new Map();
/** Each form's protection: a call takes it off, and returns whether the form was sent. */
export const protections: WeakMap<object, { (): unknown; renew(): void }> = new WeakMap();

function stored(method: keyof Storage, name: string, ...words: string[]) {
  try {
    const page = globalThis as unknown as { readonly sessionStorage: Storage };
    return page.sessionStorage[method](`submit-lock:${name}`, ...words);
  } catch {}
  return;
}

export const kept = (name: string): string | null | undefined =>
  stored("getItem", name) ?? memory.get(name);

export function keep(name: string, id: string): void {
  stored("setItem", name, id);
  memory.set(name, id);
}

/** Returns the id of a named order: made by the first call, kept by the tab to the final answer. */
export function idOf(name: string): string {
  const id = kept(name) || newId();
  keep(name, id);
  return id;
}

/** Gives up the id of a name: the next order of this name is another one. */
export function forget(name: string): void {
  memory.delete(name);
  stored("removeItem", name);
}

/** A UUID. Pages without HTTPS have no `randomUUID`, and React Native has no `crypto`. */
function newId(): string {
  const id =
    globalThis.crypto?.randomUUID?.() ??
    "xxxxxxxx-xxxx-4xxx-8xxx-xxxxxxxxxxxx".replace(
      /x/g,
      () => Math.random().toString(16)[2] as string,
    );
  unused.add(id);
  return id;
}

/**
 * Hashes an order's content, so that no content is stored: FNV-1a, but from 0 and by code points.
 * `crypto.subtle` needs HTTPS and a promise, for which a form's submit does not wait.
 */
export function digestOf(content: string): string {
  let digest = 0;
  for (const each of content)
    digest = Math.imul(digest ^ (each.codePointAt(0) as number), 16777619);
  return `${digest}`;
}
