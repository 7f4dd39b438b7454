import { checkOptionNames } from "../lock/options.ts";
import type { AcquireReply, LockRequest, LockStore, OwnedReply } from "../lock/store.ts";

interface Holding {
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
  readonly #holdings = new Map<string, Holding>();
  /** How many holdings there may be before the expired ones are swept out. */
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

  acquire(copy: LockRequest<AcquireReply>): void {
    const { key, ownerId, times } = copy.command;
    const now = performance.now();
    // Executed when written: no copy of it is ever on its way.
    copy.deadlineMs = Number.NEGATIVE_INFINITY;
    const holding = this.#live(key, now);
    if (holding === undefined) {
      this.#sweep(now);
      this.#holdings.set(key, { ownerId, expiresAt: now + times.ttlMs });
      copy.answer({ kind: "taken", storeTimeMs: now });
    } else if (holding.ownerId === ownerId) {
      copy.answer({ kind: "mine", storeTimeMs: now });
    } else {
      const expiresInMs = Math.ceil(holding.expiresAt - now);
      copy.answer({ kind: "contended", expiresInMs, storeTimeMs: now });
    }
  }

  extend(copy: LockRequest<OwnedReply>): void {
    this.#ifOwned(copy, (holding, now) => {
      holding.expiresAt = Math.max(holding.expiresAt, now + copy.command.times.ttlMs);
    });
  }

  release(copy: LockRequest<OwnedReply>): void {
    this.#ifOwned(copy, () => this.#holdings.delete(copy.command.key));
  }

  /** There is no connection that could come up, and nothing to close. */
  attach(): () => Promise<void> {
    return () => Promise.resolve();
  }

  #ifOwned(copy: LockRequest<OwnedReply>, act: (holding: Holding, now: number) => void): void {
    const { key, ownerId } = copy.command;
    const now = performance.now();
    const holding = this.#live(key, now);
    if (holding === undefined) {
      copy.answer({ kind: "gone", storeTimeMs: now });
    } else if (holding.ownerId !== ownerId) {
      copy.answer({ kind: "foreign", storeTimeMs: now });
    } else {
      act(holding, now);
      copy.answer({ kind: "done", storeTimeMs: now });
    }
  }

  #live(key: string, now: number): Holding | undefined {
    const holding = this.#holdings.get(key);
    if (holding === undefined || holding.expiresAt > now) return holding;
    this.#holdings.delete(key);
    return undefined;
  }

  /** A key whose user never comes back would stay for ever; sweeping at each doubling is cheap. */
  #sweep(now: number): void {
    if (this.#holdings.size < this.#sweepAt) return;
    for (const key of this.#holdings.keys()) this.#live(key, now);
    this.#sweepAt = Math.max(1_000, 2 * this.#holdings.size);
  }
}
