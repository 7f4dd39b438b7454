type Storage = Record<"getItem" | "setItem" | "removeItem", (...words: string[]) => string | null>;
/** Ids that storage does not take. */
const memory = new Map<string, string>();
/** Ids that no earlier page can have sent. */
export const made: Set<string | null | undefined> = new Set();
function stored(method: keyof Storage, ...words: string[]): string | null | undefined {
  try {
    return (globalThis as unknown as { sessionStorage: Storage }).sessionStorage[method](...words);
  } catch {
    return undefined;
  }
}
const keyOf = (name: string) => `submit-lock:${name}`;
const kept = (key: string) => memory.get(key) ?? stored("getItem", key);

/** The id of an order, made at the first look, and kept for this tab until an answer is final. */
export function idOf(name: string): string {
  const key = keyOf(name);
  const id = kept(key) || newId();
  stored("setItem", key, id);
  if (kept(key) !== id) memory.set(key, id);
  return id;
}

/** Forgets an id, unless another one has taken its place; without one, the id of an earlier page. */
export function forget(name: string, id?: string): void {
  const known = kept(keyOf(name));
  if (id === undefined ? made.has(known) : known !== id) return;
  memory.delete(keyOf(name));
  stored("removeItem", keyOf(name));
}

/** A UUID. Pages without HTTPS have no `randomUUID`, and React Native has no `crypto`. */
function newId(): string {
  const digit = () => Math.trunc(Math.random() * 16).toString(16);
  const random = () => "xxxxxxxx-xxxx-4xxx-8xxx-xxxxxxxxxxxx".replace(/x/g, digit);
  const id = globalThis.crypto?.randomUUID?.() ?? random();
  made.add(id);
  return id;
}
