import type { AcquireReply, LockRequest, LockStore, OwnedReply } from "../lock/store.ts";
import { checkOptionNames } from "../validation.ts";

interface Entry {
  readonly ownerId: string;
  expiresAt: number;
}

let warned = false;

/**
 * Locks in this process only: for development, demonstrations and unit tests. Two processes do not
 * see each other's locks, so that a process warning with the code `SUBMIT_LOCK_MEMORY_STORE` is
 * emitted, once, when `NODE_ENV` is `production`.
 */
export class MemoryStore implements LockStore {
  readonly #entries = new Map<string, Entry>();
  /** How many entries there may be before the expired ones are swept out. */
  #sweepAt = 1_000;

  constructor(options: Record<never, never> = {}) {
    checkOptionNames("MemoryStore", options, []);
    if (process.env["NODE_ENV"] !== "production" || warned) return;
    warned = true;
    process.emitWarning(
      "MemoryStore locks within one process only: use RedisStore where more than one process serves",
      { code: "SUBMIT_LOCK_MEMORY_STORE" },
    );
  }

  acquire(request: LockRequest<AcquireReply>): void {
    const { key, ownerId, times } = request.command;
    const now = performance.now();
    // Executed when written: no request is ever in flight.
    request.deadlineMs = Number.NEGATIVE_INFINITY;
    const entry = this.#live(key, now);
    if (entry === undefined) {
      this.#sweep(now);
      this.#entries.set(key, { ownerId, expiresAt: now + times.ttlMs });
      request.answer({ kind: "taken", storeTimeMs: now });
    } else if (entry.ownerId === ownerId) {
      request.answer({ kind: "mine", storeTimeMs: now });
    } else {
      const expiresInMs = Math.ceil(entry.expiresAt - now);
      request.answer({ kind: "contended", expiresInMs, storeTimeMs: now });
    }
  }

  extend(request: LockRequest<OwnedReply>): void {
    this.#ifOwned(request, (entry, now) => {
      entry.expiresAt = Math.max(entry.expiresAt, now + request.command.times.ttlMs);
    });
  }

  release(request: LockRequest<OwnedReply>): void {
    this.#ifOwned(request, () => this.#entries.delete(request.command.key));
  }

  /** There is no connection that could come up, and nothing to close. */
  attach(): () => Promise<void> {
    return () => Promise.resolve();
  }

  #ifOwned(request: LockRequest<OwnedReply>, act: (entry: Entry, now: number) => void): void {
    const { key, ownerId } = request.command;
    const now = performance.now();
    const entry = this.#live(key, now);
    if (entry === undefined) {
      request.answer({ kind: "gone", storeTimeMs: now });
    } else if (entry.ownerId !== ownerId) {
      request.answer({ kind: "foreign", storeTimeMs: now });
    } else {
      act(entry, now);
      request.answer({ kind: "done", storeTimeMs: now });
    }
  }

  #live(key: string, now: number): Entry | undefined {
    const entry = this.#entries.get(key);
    if (entry === undefined || entry.expiresAt > now) return entry;
    this.#entries.delete(key);
    return undefined;
  }

  /** A key whose user never comes back would stay for ever; sweeping at each doubling is cheap. */
  #sweep(now: number): void {
    if (this.#entries.size < this.#sweepAt) return;
    for (const key of this.#entries.keys()) this.#live(key, now);
    this.#sweepAt = Math.max(1_000, 2 * this.#entries.size);
  }
}
