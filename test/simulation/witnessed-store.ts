import type {
  AcquireReply,
  Copy,
  LockCommand,
  LockStore,
  OwnedReply,
} from "../../src/lock/store.ts";

/** One attempt of one call: the same for every copy that follows another. */
export interface AttemptId {
  readonly call: number;
}

export interface StoreWitness {
  now(): number;
  /** It is a timer that runs the code of the moment, and no answer. */
  isAwoken(): boolean;
  seen(command: LockCommand, attempt: AttemptId): void;
  extended(ownerId: string, kind: string): void;
  /** A copy was followed by another in the very turn in which its answer was read. */
  overlooked(kind: string): void;
}

/**
 * The store itself, unchanged, with a witness in front of it who learns which owner id belongs to
 * which attempt of which call. A copy that follows another belongs to the same attempt, whatever
 * owner id it carries.
 */
export class WitnessedStore implements LockStore {
  /** The call whose own code runs at the moment. */
  call: number | undefined;
  /** The `withLock` that waits for a key: its later attempts come out of the blue. */
  readonly waiting = new Map<string, number>();
  readonly #store: LockStore;
  readonly #witness: StoreWitness;
  /** When a copy was followed by another because a timer found it without an answer. */
  readonly #followedAt = new WeakMap<Copy<unknown>, number>();
  readonly #attemptOfCopy = new WeakMap<Copy<unknown>, AttemptId>();
  readonly #attemptOfOwner = new Map<string, AttemptId>();

  constructor(store: LockStore, witness: StoreWitness) {
    this.#store = store;
    this.#witness = witness;
  }

  acquire(command: LockCommand, unanswered?: Copy<unknown>): Copy<AcquireReply> {
    const attempt = (unanswered && this.#attemptOfCopy.get(unanswered)) ??
      this.#attemptOfOwner.get(command.ownerId) ?? {
        call: this.call ?? this.waiting.get(command.key) ?? 0,
      };
    this.#attemptOfOwner.set(command.ownerId, attempt);
    this.#witness.seen(command, attempt);
    const copy = this.#watched(this.#store.acquire(command, unanswered), unanswered);
    this.#attemptOfCopy.set(copy, attempt);
    return copy;
  }

  extend(command: LockCommand, unanswered?: Copy<unknown>): Copy<OwnedReply> {
    const copy = this.#watched(this.#store.extend(command, unanswered), unanswered);
    void copy.reply.then(({ kind }) => this.#witness.extended(command.ownerId, kind));
    return copy;
  }

  release(command: LockCommand, unanswered?: Copy<unknown>): Copy<OwnedReply> {
    return this.#watched(this.#store.release(command, unanswered), unanswered);
  }

  attach(onReady: () => void): () => Promise<void> {
    return this.#store.attach(onReady);
  }

  #watched<Reply extends { kind: string }>(
    copy: Copy<Reply>,
    unanswered: Copy<unknown> | undefined,
  ): Copy<Reply> {
    if (unanswered !== undefined && this.#witness.isAwoken()) {
      this.#followedAt.set(unanswered, this.#witness.now());
    }
    void copy.reply.then(({ kind }) => {
      if (kind !== "unknown" && this.#followedAt.get(copy) === this.#witness.now()) {
        this.#witness.overlooked(kind);
      }
    });
    return copy;
  }
}
