/** What a key holds: a string, or something that is none. */
export interface Entry {
  readonly value: string | readonly string[];
  /** By the server's wall clock, in whole milliseconds; `undefined` for ever. */
  expiresAt: number | undefined;
}

/** What is told about every change of a key. */
export interface KeyWatcher {
  set(key: string, value: string, expiresAt: number | undefined): void;
  lengthened(key: string, value: string, expiresAt: number): void;
  deleted(key: string, value: string): void;
  expired(key: string, value: string): void;
}

/** Where nobody watches what becomes of keys. */
export const nobody: KeyWatcher = { set() {}, lengthened() {}, deleted() {}, expired() {} };

/** The keys of a server, as GET, SET, PTTL, PEXPIRE and DEL see them. */
export class Keys {
  readonly #entries = new Map<string, Entry>();
  readonly #watcher: KeyWatcher;

  constructor(watcher: KeyWatcher) {
    this.#watcher = watcher;
  }

  names(): IterableIterator<string> {
    return this.#entries.keys();
  }

  /** Redis counts a key as expired once its clock has passed the time, not when it has reached it. */
  live(key: string, now: number): Entry | undefined {
    const entry = this.#entries.get(key);
    if (entry?.expiresAt === undefined || now <= entry.expiresAt) return entry;
    this.#entries.delete(key);
    if (typeof entry.value === "string") this.#watcher.expired(key, entry.value);
    return undefined;
  }

  set(key: string, value: string | readonly string[], expiresAt: number | undefined): void {
    this.#entries.set(key, { value, expiresAt });
    if (typeof value === "string") this.#watcher.set(key, value, expiresAt);
  }

  expire(key: string, now: number, expiresAt: number): 0 | 1 {
    const entry = this.live(key, now);
    if (entry === undefined) return 0;
    entry.expiresAt = expiresAt;
    if (typeof entry.value === "string") this.#watcher.lengthened(key, entry.value, expiresAt);
    return 1;
  }

  remaining(key: string, now: number): number {
    const entry = this.live(key, now);
    if (entry === undefined) return -2;
    return entry.expiresAt === undefined ? -1 : entry.expiresAt - now;
  }

  delete(key: string, now: number): 0 | 1 {
    const entry = this.live(key, now);
    if (entry === undefined) return 0;
    this.#entries.delete(key);
    if (typeof entry.value === "string") this.#watcher.deleted(key, entry.value);
    return 1;
  }

  /** What a key holds, also where its time is over and nobody has looked since. */
  kept(key: string): Entry | undefined {
    return this.#entries.get(key);
  }

  /** A replica takes over, or the server restarts without persistence: nobody is told. */
  replace(entries: ReadonlyMap<string, Entry>): void {
    this.#entries.clear();
    for (const [key, entry] of entries) this.#entries.set(key, entry);
  }
}
