import { checkOptionNames } from "../lock/options.ts";
import type { AcquireReply, Copy, LockCommand, LockStore, OwnedReply } from "../lock/store.ts";

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

  acquire(command: LockCommand): Copy<AcquireReply> {
    const now = performance.now();
    const holding = this.#live(command.key, now);
    if (holding === undefined) {
      this.#sweep(now);
      const { ownerId, times } = command;
      this.#holdings.set(command.key, { ownerId, expiresAt: now + times.ttlMs });
      return answer({ kind: "taken", storeTimeMs: now, clean: true });
    }
    if (holding.ownerId === command.ownerId) {
      return answer({ kind: "mine", storeTimeMs: now, clean: true });
    }
    const expiresInMs = Math.ceil(holding.expiresAt - now);
    return answer({ kind: "contended", expiresInMs, storeTimeMs: now, clean: true });
  }

  extend(command: LockCommand): Copy<OwnedReply> {
    return this.#ifOwned(command, (holding, now) => {
      holding.expiresAt = Math.max(holding.expiresAt, now + command.times.ttlMs);
    });
  }

  release(command: LockCommand): Copy<OwnedReply> {
    return this.#ifOwned(command, () => this.#holdings.delete(command.key));
  }

  /** There is no connection that could come up, and nothing to close. */
  attach(): () => Promise<void> {
    return () => Promise.resolve();
  }

  #ifOwned(command: LockCommand, act: (holding: Holding, now: number) => void): Copy<OwnedReply> {
    const now = performance.now();
    const holding = this.#live(command.key, now);
    if (holding === undefined) return answer({ kind: "gone", storeTimeMs: now, clean: true });
    if (holding.ownerId !== command.ownerId) {
      return answer({ kind: "foreign", storeTimeMs: now, clean: true });
    }
    act(holding, now);
    return answer({ kind: "done", storeTimeMs: now, clean: true });
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

function answer<Reply>(reply: Reply): Copy<Reply> {
  // Executed when written: no copy of it is ever on its way.
  return { deadlineMs: Number.NEGATIVE_INFINITY, reply: Promise.resolve(reply) };
}
