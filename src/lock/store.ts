/**
 * The port between the lock and whatever holds the keys. A store writes single copies of single
 * commands and says honestly what became of them; when to confirm, extend, retire or give up is
 * the lock's business. Another store is one file that implements {@link LockStore}.
 */

/** The time bounds of one lock, in milliseconds. One object for each lock: a store may group by it. */
export interface LockTimes {
  /** The life that a key is given by acquire and by extend. */
  readonly ttlMs: number;
  /** The longest that a lease is extended; also the life given to a foreign key without any. */
  readonly maxHoldMs: number;
  /** The whole budget of one attempt; a copy refuses to take effect later than this after its send. */
  readonly acquireTimeoutMs: number;
  /** How long one command may stay unanswered before another copy is tried. */
  readonly commandTimeoutMs: number;
}

/** What a command is about: a key, and the owner id whose command it is. */
export interface LockCommand {
  readonly key: string;
  readonly ownerId: string;
  readonly times: LockTimes;
}

/**
 * One write of one command; the same command may be written again, as another copy. Made by the
 * lock, and handed to a store that writes it and tells what became of it.
 */
export interface LockRequest<Reply> {
  readonly command: LockCommand;
  /**
   * The store's time, in milliseconds, after which this copy of an acquire can no longer take
   * effect. Stamped by the store when it writes the copy; of no meaning for extend and release.
   */
  deadlineMs: number | undefined;
  /**
   * To be called by the store: once, at once or later, and not at all for as long as nothing is
   * known. The lock keeps a timer of its own, and still listens for the late answer. A store that
   * throws instead counts as one that does not know.
   */
  answer(reply: Reply): void;
}

/** The store executed the command and said what it found. */
export interface Answered<Answer extends string> {
  readonly kind: Answer;
  /** The store's own clock when it executed the command, in milliseconds. */
  readonly storeTimeMs: number;
}

/** The key was held by somebody else. */
export interface ContendedAnswer extends Answered<"contended"> {
  /** How long the other's key has to live, in milliseconds; `Infinity` for a key that is no lock, such as a list. */
  readonly expiresInMs: number;
}

/** No answer to the command itself. */
export type NoAnswer =
  /** Never written: certainly without effect. */
  | { readonly kind: "unsent"; readonly reason: string }
  /** The store said that it did not execute the command. */
  | {
      readonly kind: "rejected";
      readonly cause: Error;
      /** The store said "you may not" rather than "not now": waiting does not help. */
      readonly misconfigured: boolean;
    }
  /** Written, and nothing can be said about its effect. */
  | { readonly kind: "unknown"; readonly cause: Error };

/**
 * - `taken`: the key was free and holds the owner id now, with its full life.
 * - `mine`: this owner id held the key already; its life is left as it is.
 * - `contended`: somebody else holds it.
 * - `refused`: free, but this copy came after its deadline, or too early by a wrong clock.
 */
export type AcquireReply =
  | Answered<"taken">
  | Answered<"mine">
  | Answered<"outOfWindow">
  | ContendedAnswer
  | NoAnswer;

/** `done`: the key held this owner id, and was lengthened or deleted. `gone`: no key. `foreign`: another owner id. */
export type OwnedReply = Answered<"done"> | Answered<"gone"> | Answered<"foreign"> | NoAnswer;

export interface LockStore {
  /**
   * Writes one copy of the acquire: the owner id with its life where the key is free, in one atomic
   * step with the check of the copy's deadline. A foreign value without an expiry is given
   * `maxHoldMs` to live. While an earlier copy is unanswered, the next one goes another way where
   * there is one.
   */
  acquire(copy: LockRequest<AcquireReply>): void;
  /** Writes one copy of the extend: lengthens the key to the full life if it holds the owner id; never shortens it. */
  extend(copy: LockRequest<OwnedReply>): void;
  /** Writes one copy of the release: deletes the key if it holds the owner id. */
  release(copy: LockRequest<OwnedReply>): void;
  /**
   * A lock begins to use the store.
   *
   * @param onReady called whenever a connection came up, also for the first time.
   * @returns ends this use; the last one closes what the store opened itself, and nothing else.
   */
  attach(onReady: () => void): () => Promise<void>;
}
