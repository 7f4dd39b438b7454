/**
 * The port between the lock and the store that holds the keys. A store writes single requests and
 * reports honestly how each ended; when to confirm, extend, retire or give up is the lock's business.
 * Another store is one file that implements {@link LockStore}.
 */

import type { FreeResult, Inspection } from "./on-call.ts";

export type { FreeResult, Inspection } from "./on-call.ts";

/** The longest life that a lock is given, and with it a tombstone, in milliseconds. */
export const longestTtlMs = 300_000;

/** The longest cooldown, in milliseconds. */
export const longestCooldownMs = 60_000;

/** The time bounds of one lock, in milliseconds. One object for each lock: a store may group by it. */
export interface LockTimes {
  /** How long a key lives after an acquire and after an extend. */
  readonly ttlMs: number;
  /**
   * The longest that a lease is extended, and that a complete without an answer is sent again; also
   * what a foreign key without an expiry is given to live.
   */
  readonly maxHoldMs: number;
  /** The whole budget of one attempt; a request takes no effect later than this after its send. */
  readonly acquireTimeoutMs: number;
  /** How long one request may stay unanswered before another is sent. */
  readonly commandTimeoutMs: number;
}

/** The identity of a submission in a store: two hashes of 22 characters. */
export interface SubmissionHashes {
  readonly id: string;
  /** 22 dashes where there is none; two are compared only where both are there. */
  readonly fingerprint: string;
}

/** The subject of a request: a key, and the owner id on whose behalf it is made. */
export interface LockCommand {
  readonly key: string;
  readonly ownerId: string;
  readonly times: LockTimes;
  /** The process that asks, for a person who looks at the key: percent-encoded like a user id, "" for none. */
  readonly holder: string;
  /** The submission under the lock; `undefined` for a lock alone. */
  readonly submission: SubmissionHashes | undefined;
}

/**
 * One write of one command. The lock makes it and hands it to a store, which writes it and reports
 * its outcome. The same command may be written again, as another request.
 */
export interface LockRequest<Reply> {
  readonly command: LockCommand;
  /**
   * The store's time, in milliseconds, after which this request of an acquire can no longer take
   * effect. Set by the store when it writes the request; not used for extend and release.
   */
  deadlineMs: number | undefined;
  /**
   * Called by the store, at most once, during the call or later; not while the outcome is unknown
   * but may still come. The lock has timers of its own, and still listens for a late answer.
   *
   * An answer has to speak for the only write of this request. When the connection that it went
   * over is lost, answer `unknown` and pass on nothing that comes later: a client that writes it
   * again on its next connection would hide that the first write is still on its way.
   */
  answer(reply: Reply): void;
}

/** A request of an acquire. */
export interface AcquireRequest extends LockRequest<AcquireReply> {
  /** It only looks: a free key is left free, and the answer is `outOfWindow`. */
  readonly onlyLooks: boolean;
}

/** A request of a release. */
export interface ReleaseRequest extends LockRequest<OwnedReply> {
  /**
   * Where it is later than the store's time, the key is not deleted but refuses every acquire until
   * then. The store's time in whole milliseconds, the same in every copy; 0 for none.
   */
  readonly cooldownUntilMs: number;
}

/** A request of a complete: the answer of a submission takes the place of its lock. */
export interface CompleteRequest extends LockRequest<CompleteReply> {
  /** The text to keep; a later acquire of the same submission is answered with it. */
  readonly record: string;
  /** The store's time in whole milliseconds at which the record expires, the same in every copy. */
  readonly expiresAtMs: number;
  /** As in {@link ReleaseRequest}, where the key still held the owner id. */
  readonly cooldownUntilMs: number;
}

/** A request that only looks at a key. */
export type InspectRequest = LockRequest<InspectReply>;

/** A request that takes the lock away from the holder with the id. */
export interface FreeRequest extends LockRequest<FreeReply> {
  /** 8 digits or more of an owner id, or of the SHA-1 of a value that is not ours. */
  readonly id: string;
  /** Percent-encoded like a user id. */
  readonly by: string;
  /** Percent-encoded as well. */
  readonly reason: string;
  /** Deletes at once, although a holder may be at work. */
  readonly now: boolean;
}

/** The store executed the request and said what it found. */
export interface Answered<Answer extends string> {
  readonly kind: Answer;
  /** The store's own clock when it executed the request, in milliseconds. */
  readonly storeTimeMs: number;
}

/** The key holds the owner id. */
export interface GrantedAnswer<Kind extends "taken" | "mine"> extends Answered<Kind> {
  /** The fencing token of the lease, a safe integer; `undefined` in a store that has none. */
  readonly fencingToken?: number | undefined;
}

/** The submission was completed before. */
export interface CompletedAnswer extends Answered<"completed"> {
  /** The text that {@link CompleteRequest.record} was. */
  readonly record: string;
}

/** The id is that of another submission, with another fingerprint. */
export interface MismatchedAnswer extends Answered<"mismatched"> {
  /** That one is still being processed; otherwise it was completed. */
  readonly inFlight: boolean;
}

/** The key was held by another owner. */
export interface ContendedAnswer extends Answered<"contended"> {
  /** The holder is at work on the very submission that was asked for. */
  readonly sameSubmission?: boolean | undefined;
  /** There is no holder: a cooldown is not over. */
  readonly isCooldown?: boolean | undefined;
  /** How long the other's key has to live, in milliseconds; `Infinity` for a key that is no lock, such as a list. */
  readonly expiresInMs: number;
}

/**
 * No answer to the command itself, and how certain that is. A store that is not sure says
 * `unknown`: then the lock confirms, and deletes the key that the request may have left. A wrong
 * `unsent` or `rejected` leaves a key without an owner, for as long as `ttlMs`.
 */
export type NoAnswer =
  /** Never written: certainly without effect. */
  | {
      readonly kind: "unsent";
      readonly reason: string;
      /** The cause of the reason, where the store knows it. */
      readonly cause?: Error | undefined;
    }
  /** The store said that it did not execute the request. */
  | {
      readonly kind: "rejected";
      readonly cause: Error;
      /** The store will not execute it later either (no permission, a wrong password): waiting does not help. */
      readonly misconfigured: boolean;
      /** Misconfigured: the remedy, for the message of the error. */
      readonly advice?: string | undefined;
    }
  /** Written, and nothing can be said about its effect. */
  | { readonly kind: "unknown"; readonly cause: Error };

export function isNoAnswer(reply: { readonly kind: string }): reply is NoAnswer {
  return reply.kind === "unsent" || reply.kind === "rejected" || reply.kind === "unknown";
}

/**
 * - `taken`: the key was free and holds the owner id now, with its full life.
 * - `mine`: this owner id held the key already; its expiry is left as it is.
 * - `contended`: another owner holds it.
 * - `outOfWindow`: free, but this request only looks, or came after its deadline, or too early by a
 *   wrong clock.
 * - `completed`, `mismatched`: only where the command has a submission. Both are looked for before
 *   the key, so a record counts even where this owner id holds the key.
 */
export type AcquireReply =
  | GrantedAnswer<"taken">
  | GrantedAnswer<"mine">
  | Answered<"outOfWindow">
  | ContendedAnswer
  | CompletedAnswer
  | MismatchedAnswer
  | NoAnswer;

/**
 * `done`: the key held this owner id, and was extended or deleted. `gone`: no key. `freed`: a person
 * has taken the lock away from this owner id. `foreign`: anything else, including another owner's tombstone.
 */
export type OwnedReply =
  | Answered<"done">
  | Answered<"gone">
  | Answered<"freed">
  | Answered<"foreign">
  | NoAnswer;

/** The content of the key. */
export interface InspectedAnswer extends Answered<"inspected"> {
  readonly found: Inspection;
}

/** The outcome of a free. */
export interface FreeAnswer extends Answered<"answered"> {
  readonly result: FreeResult;
}

export type InspectReply = InspectedAnswer | NoAnswer;
export type FreeReply = FreeAnswer | NoAnswer;

/**
 * - `recorded`: the record stands, by this request or an earlier copy of it, and the key is free.
 * - `late`: the record stands, but the key had not held this owner id any more.
 * - `expired`: this request came at or after the record's expiry; nothing was recorded.
 * - `duplicate`: another owner id has recorded an answer of the same submission: it ran twice.
 * - `unrecordable`: a value that is not a record is in its place; nothing was recorded.
 */
export type CompleteReply =
  | Answered<"recorded">
  | Answered<"late">
  | Answered<"expired">
  | Answered<"duplicate">
  | Answered<"unrecordable">
  | NoAnswer;

/**
 * Where the keys live. A method that throws counts as one that answered `unknown`.
 */
export interface LockStore {
  /**
   * Writes one request of the acquire: the owner id with its expiry where the key is free, in one
   * atomic step with the check of the deadline. A foreign value without an expiry is given
   * `maxHoldMs` to live. While an earlier request is unanswered, the next one should take another
   * connection where there is one.
   */
  acquire(request: AcquireRequest): void;
  /** Writes one request of the extend: gives the key its full life again if it holds the owner id; never shortens it. */
  extend(request: LockRequest<OwnedReply>): void;
  /** Writes one request of the release: deletes the key if it holds the owner id. */
  release(request: ReleaseRequest): void;
  /**
   * Writes one request of the complete, in one atomic step: the record where there is none yet, then
   * the release. A record is never overwritten, lengthened or deleted. Without this method a store
   * keeps no answers, and `idempotency` and `cooldownMs` of a guard are refused.
   */
  complete?(request: CompleteRequest): void;
  /** Writes one request that looks at a key and changes nothing. Without this method `inspect` of a lock is refused. */
  inspect?(request: InspectRequest): void;
  /**
   * Writes one request of the free, in one atomic step: where the key holds a lease of the id, a
   * tombstone that names the owner id takes its place and keeps the expiry (`ttlMs` where there was
   * none), so that its holder meets it and no other gets in before. A cooldown or a foreign value
   * of the id is deleted, and so is everything with `now`. A second one answers as the first. Without
   * this method `free` of a lock is refused.
   */
  free?(request: FreeRequest): void;
  /** Why this store cannot keep answers although it has `complete`; `undefined` where it can. */
  readonly recordsProblem?: string | undefined;
  /**
   * A lock begins to use the store.
   *
   * @param onReady called whenever a connection came up, also for the first time.
   * @returns ends this use; the last one closes what the store opened itself, and nothing else.
   */
  attach(onReady: () => void): () => Promise<void>;
}
