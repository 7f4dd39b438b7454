import type {
  AcquireReply,
  LockCommand,
  LockRequest,
  LockStore,
  OwnedReply,
} from "../../../src/lock/store.ts";

/** One attempt of one call: the same for every copy that follows another. */
export interface AttemptId {
  readonly call: number;
}

export interface StoreObserver {
  now(): number;
  /** It is a timer that runs the code of the moment, and no answer. */
  isAwoken(): boolean;
  seen(command: LockCommand, attempt: AttemptId): void;
  extended(ownerId: string, kind: string): void;
  /** A copy was followed by another in the very turn in which its answer was read. */
  overlooked(kind: string): void;
}

/**
 * The store itself, unchanged, with a observer in front of it who learns which owner id belongs to
 * which attempt of which call. A copy that follows another belongs to the same attempt, whatever
 * owner id it carries.
 */
export class ObservedStore implements LockStore {
  /** The call whose own code runs at the moment. */
  call: number | undefined;
  /** The `withLock` that waits for a key: its later attempts come out of the blue. */
  readonly waiting = new Map<string, number>();
  readonly #store: LockStore;
  readonly #observer: StoreObserver;
  /** When a copy was followed by another because a timer found it without an answer. */
  readonly #followedAt = new WeakMap<LockRequest<unknown>, number>();
  /** The copies of each command that have no answer yet. */
  readonly #unanswered = new Map<string, Set<LockRequest<unknown>>>();
  readonly #attemptOfOwner = new Map<string, AttemptId>();

  constructor(store: LockStore, observer: StoreObserver) {
    this.#store = store;
    this.#observer = observer;
  }

  acquire(copy: LockRequest<AcquireReply>): void {
    const { key, ownerId } = copy.command;
    // Its UUID alone: a mutant gives each copy an owner id of its own by appending to it.
    const owner = ownerId.slice(0, 36);
    const attempt = this.#attemptOfOwner.get(owner) ?? {
      call: this.call ?? this.waiting.get(key) ?? 0,
    };
    this.#attemptOfOwner.set(owner, attempt);
    this.#observer.seen(copy.command, attempt);
    this.#store.acquire(this.#watched(copy, `acquire ${owner}`));
  }

  extend(copy: LockRequest<OwnedReply>): void {
    const { ownerId } = copy.command;
    const heard = (kind: string) => this.#observer.extended(ownerId, kind);
    this.#store.extend(this.#watched(copy, `extend ${ownerId}`, heard));
  }

  release(copy: LockRequest<OwnedReply>): void {
    this.#store.release(this.#watched(copy, `release ${copy.command.ownerId}`));
  }

  attach(onReady: () => void): () => Promise<void> {
    return this.#store.attach(onReady);
  }

  #watched<Reply extends { kind: string }>(
    copy: LockRequest<Reply>,
    command: string,
    heard: (kind: string) => void = () => {},
  ): LockRequest<Reply> {
    const unanswered = this.#unanswered.get(command) ?? new Set();
    if (this.#observer.isAwoken()) {
      for (const earlier of unanswered) this.#followedAt.set(earlier, this.#observer.now());
    }
    this.#unanswered.set(command, unanswered.add(copy));
    return {
      get command() {
        return copy.command;
      },
      get deadlineMs() {
        return copy.deadlineMs;
      },
      set deadlineMs(at: number | undefined) {
        copy.deadlineMs = at;
      },
      answer: (reply) => {
        const { kind } = reply;
        heard(kind);
        unanswered.delete(copy);
        if (unanswered.size === 0) this.#unanswered.delete(command);
        if (kind !== "unknown" && this.#followedAt.get(copy) === this.#observer.now()) {
          this.#observer.overlooked(kind);
        }
        copy.answer(reply);
      },
    };
  }
}
