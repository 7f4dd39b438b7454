type Storage = Record<"getItem" | "setItem" | "removeItem", (...words: string[]) => string | null>;
/** Ids that storage does not take, by name. */
const memory = new Map<string, string>();
/** Ids in use here, also the page's own; `true` if an order that was sent may be on its way. */
export const doubts: Map<string | null | undefined, boolean> = new Map();
function stored(method: keyof Storage, name: string, ...words: string[]) {
  try {
    const { sessionStorage } = globalThis as unknown as { sessionStorage: Storage };
    return sessionStorage[method](`submit-lock:${name}`, ...words);
  } catch {
    return undefined;
  }
}
const kept = (name: string) => memory.get(name) ?? stored("getItem", name);

/** The id of an order, made at the first look, and kept for this tab until an answer is final. */
export function idOf(name: string): string {
  const id = kept(name) || newId();
  stored("setItem", name, id);
  if (kept(name) !== id) memory.set(name, id);
  return id;
}

/** Forgets an id, unless another one has taken its place; without one, the id of an earlier page. */
export function forget(name: string, id?: string): void {
  doubts.delete(id);
  const known = kept(name);
  if (id === undefined ? doubts.has(known) : known !== id) return;
  memory.delete(name);
  stored("removeItem", name);
}

/** A UUID. Pages without HTTPS have no `randomUUID`, and React Native has no `crypto`. */
function newId(): string {
  const digit = () => Math.trunc(Math.random() * 16).toString(16);
  const random = () => "xxxxxxxx-xxxx-4xxx-8xxx-xxxxxxxxxxxx".replace(/x/g, digit);
  const id = globalThis.crypto?.randomUUID?.() ?? random();
  doubts.set(id, false);
  return id;
}
