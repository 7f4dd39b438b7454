/**
 * The port between the lock and its store. A store writes single requests and reports honestly how
 * each ended; the lock decides when to confirm, extend, retire or give up.
 */

import type { LostReason } from "../errors.ts";
import type { Inspection } from "./inspection.ts";

export type * from "./inspection.ts";

/** The time bounds of one `SubmitLock`, in ms. One object each: a store may group by it. */
export interface LockTimes {
  /** How long a key lives after an acquire and after an extend. */
  readonly ttlMs: number;
  /**
   * How long a lease is extended, and a complete sent again, at most; also the life that an acquire
   * gives to a foreign text without an expiry.
   */
  readonly maxHoldMs: number;
  /** How long one attempt may take; its requests take no effect later after their send. */
  readonly acquireTimeoutMs: number;
  /** How long one request may stay unanswered before another is sent. */
  readonly commandTimeoutMs: number;
}

/** The identity of a submission in a store: two hashes of 22 characters. */
export interface SubmissionHashes {
  readonly id: string;
  /** 22 dashes for a submission without a fingerprint, which is not compared with another one. */
  readonly fingerprint: string;
}

/** The subject of a request: a key, and the owner id on whose behalf it is made. */
export interface LockCommand {
  readonly key: string;
  readonly ownerId: string;
  readonly times: LockTimes;
  /** The asking process, for a person who looks at the key: percent-encoded, "" for none. */
  readonly holder: string;
  /** The submission under the lock; `undefined` for a lock alone. */
  readonly submission: SubmissionHashes | undefined;
}

/** One write of one command. The same command may be written again, as another request. */
export interface LockRequest<Reply> {
  readonly command: LockCommand;
  /** **Set by the store**, for an acquire: its time in ms after which this cannot take effect. */
  deadlineMs: number | undefined;
  /**
   * Called by the store, at most once, as soon as the outcome is known, or can no longer become
   * known. A late answer still counts. It has to speak for the only write of this request: when the
   * connection of that write is lost, answer `unknown` and nothing later. A client that writes the
   * request again would hide that the first write is still on its way.
   */
  answer(reply: Reply): void;
}

export interface AcquireRequest extends LockRequest<AcquireReply> {
  /** Takes nothing: a free key is left free, with the answer `outOfWindow`. */
  readonly onlyLooks: boolean;
  /** For a look: the owner id of the run whose answer may be {@link ToldAnswer}. */
  readonly waitsFor?: string | undefined;
}

/** A record: text stands for its UTF-8. A store reads no more of it than its head, of ASCII. */
export type RecordBytes = string | Uint8Array;

export interface ReleaseRequest extends LockRequest<OwnedReply> {
  /**
   * If it is later than the store's time, the key is not deleted but refuses every acquire until
   * then: a cooldown. In whole ms, the same in every copy; 0 for none.
   */
  readonly cooldownUntilMs: number;
  /**
   * The answer of the run, for those who look for it (`waitsFor`) in the next `lifeMs`. It is written
   * if this request lets the key go, and in the same step. A store may leave it out.
   */
  readonly told?: { readonly record: RecordBytes; readonly lifeMs: number } | undefined;
}

/** Writes the record of a submission, then releases its lock. */
export interface CompleteRequest extends LockRequest<CompleteReply> {
  /** To keep; a later acquire of the same submission is answered with it. */
  readonly record: RecordBytes;
  /** The store's time in whole milliseconds at which the record expires, the same in every copy. */
  readonly expiresAtMs: number;
  /** As in {@link ReleaseRequest}, if the key still holds the owner id. */
  readonly cooldownUntilMs: number;
}

export type InspectRequest = LockRequest<InspectReply>;

/** Takes the lock away from the holder with the id. */
export interface FreeRequest extends LockRequest<FreeReply> {
  /** 8 or more digits of an owner id, or the `id` of a value that submit-lock did not write. */
  readonly id: string;
  /** The person who frees and why, both percent-encoded like a user id. */
  readonly by: string;
  readonly reason: string;
  /** Deletes the key at once, although a holder may be at work. */
  readonly now: boolean;
}

/** Deletes the record of the command's submission, if it is of the run that was looked at. */
export interface ForgetRequest extends LockRequest<ForgetReply> {
  /** The owner id in the record's head. */
  readonly run: string;
}

/** Leaves a trace of an order whose lock has run out under it, or says that this order has ended. */
export interface OutliveRequest extends LockRequest<OwnedReply> {
  /** By the store's time; `undefined` where the order has ended. */
  readonly trace:
    | { readonly reason: LostReason; readonly takenAtMs: number; readonly endedAtMs: number }
    | undefined;
  /** How long to keep that. An end is kept because a copy of the trace may still be on its way. */
  readonly lifeMs: number;
}

/** The store executed the request. */
export interface Answered<Answer extends string> {
  readonly kind: Answer;
  /** The store's own clock when it executed the request, in milliseconds. */
  readonly storeTimeMs: number;
}

export interface GrantedAnswer<Kind extends "taken" | "mine"> extends Answered<Kind> {
  /** A safe integer; `undefined` in a store that has no fencing tokens. */
  readonly fencingToken?: number | undefined;
}

export interface CompletedAnswer extends Answered<"completed"> {
  /** The first run's {@link CompleteRequest.record}. */
  readonly record: RecordBytes;
}

/** Only for a look: the run it waits for has let the key go, and told this. */
export interface ToldAnswer extends Answered<"told"> {
  /** The run's {@link ReleaseRequest.told}. */
  readonly record: RecordBytes;
}

export interface MismatchedAnswer extends Answered<"mismatched"> {
  /** `true` if that submission is still being processed, `false` if it was completed. */
  readonly inFlight: boolean;
}

export interface ContendedAnswer extends Answered<"contended"> {
  /** The holder has the lock for the same submission. */
  readonly sameSubmission?: boolean | undefined;
  /** With `sameSubmission`: the holder's owner id, by which a look finds what that run told. */
  readonly holderId?: string | undefined;
  /** There is no holder: a cooldown is not over. */
  readonly isCooldown?: boolean | undefined;
  /** How long the key lives unless it is extended, in ms; `Infinity` if it holds no text. */
  readonly expiresInMs: number;
}

/**
 * Why the store has no answer to the command, and how certain that is. A store that is not sure
 * says `unknown`: then the lock confirms, and deletes the key that the request may have left. A
 * wrong `unsent` or `rejected` may leave a key without an owner, for as long as `ttlMs`.
 */
export type NoAnswer =
  /** Not written, or to a node without the key: certainly without effect. */
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
      /** Waiting does not help: there is no permission, a wrong password or the like. */
      readonly misconfigured: boolean;
      /** Misconfigured: a sentence on the meaning of `cause`, for the message of the error. */
      readonly advice?: string | undefined;
    }
  /** The request may have been written, and its effect is unknown. */
  | {
      readonly kind: "unknown";
      readonly cause: Error;
      /** The store did answer, without saying whether it was executed: it is asked more slowly. */
      readonly isAnswered?: true;
    };

/**
 * - `taken`: the key was free and holds the owner id now, with its full life.
 * - `mine`: this owner id held the key already; its expiry is left as it is.
 * - `contended`: the key holds anything else.
 * - `outOfWindow`: free, but this request only looks, or came after its deadline, or too early by a
 *   wrong clock.
 * - `completed`, `told`, `mismatched`: only where the command has a submission. The record is read before
 *   the key, so a record counts even where this owner id holds the key.
 */
export type AcquireReply =
  | GrantedAnswer<"taken">
  | GrantedAnswer<"mine">
  | Answered<"outOfWindow">
  | ContendedAnswer
  | CompletedAnswer
  | ToldAnswer
  | MismatchedAnswer
  | NoAnswer;

/**
 * `done`: the key held this owner id, and was extended, deleted or given a cooldown. `gone`: no
 * key. `freed`: the key holds this owner id's tombstone. `foreign`: the key holds anything else.
 */
export type OwnedReply = Answered<"done" | "gone" | "freed" | "foreign"> | NoAnswer;

/**
 * The outcome of a `free`. `freed`: the lock can be acquired after `freeInMs` milliseconds.
 * `already-free`: there was no key. `changed`: the key's value has another id; nothing was done.
 */
export type FreeResult =
  | { readonly outcome: "freed"; readonly freeInMs: number }
  | { readonly outcome: "already-free" }
  | { readonly outcome: "changed" };

export interface InspectedAnswer extends Answered<"inspected"> {
  readonly found: Inspection;
}

export interface FreeAnswer extends Answered<"answered"> {
  readonly result: FreeResult;
}

export type InspectReply = InspectedAnswer | NoAnswer;
export type FreeReply = FreeAnswer | NoAnswer;

/**
 * - `forgotten`: the record is deleted.
 * - `inFlight`: the key holds a lease for the submission; nothing was done.
 * - `changed`: the record is another run's, or no record; nothing was done. `absent`: there is none.
 */
export type ForgetReply = Answered<"forgotten" | "inFlight" | "changed" | "absent"> | NoAnswer;

/**
 * - `recorded`: the record is written, by this request or an earlier copy; the key was released.
 * - `late`: the record is written, but the key no longer held this owner id.
 * - `expired`: this request came at or after the record's expiry; nothing was recorded.
 * - `duplicate`: another owner id has recorded an answer of the same submission: it ran twice.
 * - `unrecordable`: a value that is not a record is in its place; nothing was recorded.
 */
export type CompleteReply =
  | Answered<"recorded" | "late" | "expired" | "duplicate" | "unrecordable">
  | NoAnswer;

/**
 * Where the keys are. A method that takes a request and throws counts as an answer `unknown`.
 *
 * A store of your own **sets `request.deadlineMs`** when it writes an acquire, and does not execute it
 * later: `Number.NEGATIVE_INFINITY` where none can be once the method has returned. While it is
 * `undefined`, the acquire counts as under way, and the lock goes on to delete what it may leave.
 */
export interface LockStore {
  /**
   * Writes one acquire, in one atomic step: checks the deadline, and sets a free key to the owner
   * id with its expiry. A foreign text without an expiry is given `maxHoldMs` to live. While a
   * request is unanswered, the next one should take another connection.
   */
  acquire(request: AcquireRequest): void;
  /** Writes one request of the extend: gives an owned key its full life again, never less. */
  extend(request: LockRequest<OwnedReply>): void;
  /** Writes one request of the release: deletes an owned key, or leaves a cooldown in it. */
  release(request: ReleaseRequest): void;
  /**
   * Writes one request of the complete, in one atomic step: the record where there is none yet,
   * then the release. A record is never overwritten or lengthened. Without this method a
   * store keeps no answers: submissions and cooldowns are an `InvalidOptionError`.
   */
  complete?(request: CompleteRequest): void;
  /** Writes one request that only reads a key. Without it, `inspect` is an `InvalidOptionError`. */
  inspect?(request: InspectRequest): void;
  /**
   * Writes one request of the free, in one atomic step. A tombstone with the owner id and its expiry
   * (`ttlMs` where there was none) replaces a lease of the id: its holder meets it, and no other
   * gets in before. A cooldown, a foreign value or, with `now`, any value with the id is deleted. A
   * tombstone is `freed` again. Without this method `free` of a lock is an `InvalidOptionError`.
   */
  free?(request: FreeRequest): void;
  /** Compares, and deletes the record, in one atomic step. Without it, `forget` of a lock throws. */
  forget?(request: ForgetRequest): void;
  /** Writes one request of a trace, which no acquire meets. Without it, `inspect` shows none. */
  outlive?(request: OutliveRequest): void;
  /** Why this store cannot keep answers although it has `complete`; `undefined` where it can. */
  readonly recordsProblem?: string | undefined;
  /**
   * A lock begins to use the store.
   *
   * @param onReady called whenever a connection came up, also for the first time.
   * @returns a function that ends this use; the last end closes the store's own connections only.
   */
  attach(onReady: () => void): () => Promise<void>;
}
