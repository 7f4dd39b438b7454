/**
 * The port between the lock and its store. A store writes single requests and reports honestly how
 * each ended; the lock decides when to confirm, extend, retire or give up.
 */

import type { LostReason } from "../errors.ts";
import type { Inspection } from "./inspection.ts";

export type * from "./inspection.ts";

/** The times of one `SubmitLock`, in ms. A lock's calls share the object: a store may group by it. */
export interface LockTimes {
  /** How long a key lives after an acquire and after an extend. */
  readonly ttlMs: number;
  /**
   * The longest time for which a lease is extended. Also the life that an acquire gives to another
   * program's text without an expiry.
   */
  readonly maxHoldMs: number;
  /** How long one attempt may take, and how long after its send an acquire may be executed. */
  readonly acquireTimeoutMs: number;
  /** A command without an answer is sent again after this time, or when a connection comes up. */
  readonly commandTimeoutMs: number;
}

/** The identity of a submission in a store: two hashes of 22 characters. */
export interface SubmissionHashes {
  readonly id: string;
  /** 22 dashes for a submission without a fingerprint: equal to every other fingerprint. */
  readonly fingerprint: string;
}

/** The part that all requests of one operation have in common, such as its key and owner id. */
export interface LockCommand {
  readonly key: string;
  readonly ownerId: string;
  readonly times: LockTimes;
  /** The name of this process, shown to a person who inspects the key: percent-encoded, or "". */
  readonly holder: string;
  /** The submission for which the lock is taken; `undefined` for a lock without one. */
  readonly submission: SubmissionHashes | undefined;
}

/** One write of one command. The same command may be written again, as another request. */
export interface LockRequest<Reply> {
  readonly command: LockCommand;
  /** **Set by the store** for an acquire: the store's time, in ms, after which no lock is taken. */
  deadlineMs: number | undefined;
  /**
   * Called by the store, at most once, as soon as the outcome is known, or can no longer become
   * known. A late answer still counts. Write a request once: when its connection is lost, answer
   * `unknown`, and nothing later. If a client library wrote it again by itself, the second reply
   * would hide that the first write may still take effect.
   */
  answer(reply: Reply): void;
}

export interface AcquireRequest extends LockRequest<AcquireReply> {
  /** `true` to look only: a free key is left free, with the answer `outOfWindow`. */
  readonly onlyLooks: boolean;
  /** The owner id of the run for whose end the caller waits, to get its {@link ToldAnswer}. */
  readonly waitsFor?: string | undefined;
}

/** A record; a string stands for its UTF-8. A store reads only its first 60 bytes, all ASCII. */
export type RecordBytes = string | Uint8Array;

export interface ReleaseRequest extends LockRequest<OwnedReply> {
  /**
   * The end of a cooldown, in the store's time: until then the key is not deleted, and no acquire
   * takes it. In whole ms, equal in every copy; 0 without a cooldown, and after the first answer.
   */
  readonly cooldownUntilMs: number;
  /**
   * The answer of the run, kept for `lifeMs` for callers that look for it (`waitsFor`). It is
   * written only if this request releases the key, and in the same step. A store may leave it out.
   */
  readonly told?: { readonly record: RecordBytes; readonly lifeMs: number } | undefined;
}

/** Writes the record of a submission, then releases its lock. */
export interface CompleteRequest extends LockRequest<CompleteReply> {
  /** The record to keep: a later acquire of the same submission is answered with it. */
  readonly record: RecordBytes;
  /** The store's time in whole milliseconds at which the record expires, the same in every copy. */
  readonly expiresAtMs: number;
  /** The end of a cooldown, as in {@link ReleaseRequest}, if the key still holds the owner id. */
  readonly cooldownUntilMs: number;
}

export type InspectRequest = LockRequest<InspectReply>;

/** Takes the lock away from the holder with the id. */
export interface FreeRequest extends LockRequest<FreeReply> {
  /** The first 8 or more digits of an owner id, or the `id` that `inspect` shows for any value. */
  readonly id: string;
  /** The person who frees and why, both percent-encoded like a user id. */
  readonly by: string;
  readonly reason: string;
  /** Deletes the key at once, although a holder may be at work. */
  readonly now: boolean;
}

/** Deletes the record of the command's submission, if it is still the record of `run`. */
export interface ForgetRequest extends LockRequest<ForgetReply> {
  /** The owner id in the record's head. */
  readonly run: string;
}

/** Makes `inspect` show an order that still runs after its lock has ended, or show it no longer. */
export interface OutliveRequest extends LockRequest<OwnedReply> {
  /** Why and when the lock ended, by the store's clock; `undefined` where the order has ended. */
  readonly trace:
    | { readonly reason: LostReason; readonly takenAtMs: number; readonly endedAtMs: number }
    | undefined;
  /** How long to keep the trace, or the note of the order's end, which overrules a late trace. */
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

/** Only for a look with `waitsFor`: that run has released the key, and left this answer. */
export interface ToldAnswer extends Answered<"told"> {
  /** The run's {@link ReleaseRequest.told}. */
  readonly record: RecordBytes;
}

export interface MismatchedAnswer extends Answered<"mismatched"> {
  /** Whether the submission with the other fingerprint is in flight; `false` if it is completed. */
  readonly inFlight: boolean;
}

export interface ContendedAnswer extends Answered<"contended"> {
  /** The holder has the lock for the same submission. */
  readonly sameSubmission?: boolean | undefined;
  /** With `sameSubmission`: the holder's owner id, which a look can give as `waitsFor`. */
  readonly holderId?: string | undefined;
  /** There is no holder: a cooldown is not over. */
  readonly isCooldown?: boolean | undefined;
  /** How long the key lives unless it is extended, in ms; `Infinity` if the key is not a string. */
  readonly expiresInMs: number;
}

/**
 * Why a request has no answer, and whether it may have taken effect. A store that is not sure says
 * `unknown`: then the lock sends the command again, and deletes a key that the request has set. A
 * wrong `unsent` or `rejected` may leave a key that no lease holds: the user waits for `ttlMs`.
 */
export type NoAnswer =
  /** The request was not written, or went to a node without the key: it certainly has no effect. */
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
      /** If misconfigured: a sentence that explains `cause`, for the message of the error. */
      readonly advice?: string | undefined;
    }
  /** The request may have been written, and its effect is unknown. */
  | {
      readonly kind: "unknown";
      readonly cause: Error;
      /** The store sent an error: a complete or release then pauses, longer each time, up to 1 s. */
      readonly isAnswered?: true;
    };

/**
 * - `taken`: the key was free and holds the owner id now, with its full life.
 * - `mine`: this owner id held the key already; its expiry is left as it is.
 * - `contended`: the key holds anything else.
 * - `outOfWindow`: the key is free, but this request only looks, or was executed after its
 *   deadline, or so long before it that a wrong clock must have set the deadline.
 * - `completed`, `told`, `mismatched`: only for a command with a submission. The record is read
 *   before the key, so a record counts even where this owner id holds the key.
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
 * `done`: the key held this owner id, and was extended, deleted or given a cooldown (or holds the
 * cooldown of an earlier copy of this release). `gone`: there is no key. `freed`: the key holds the
 * tombstone of this owner id. `foreign`: the key holds anything else.
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

export type InspectReply = (Answered<"inspected"> & { readonly found: Inspection }) | NoAnswer;
export type FreeReply = (Answered<"answered"> & { readonly result: FreeResult }) | NoAnswer;

/**
 * - `forgotten`: the record is deleted.
 * - `inFlight`: the key holds a lease for the submission; nothing was done.
 * - `changed`: another run's record, or another value, is there; nothing was done.
 * - `absent`: there is no record.
 */
export type ForgetReply = Answered<"forgotten" | "inFlight" | "changed" | "absent"> | NoAnswer;

/**
 * - `recorded`: this request wrote the record and released the key, or an earlier copy did.
 * - `late`: the record is written, but the key no longer held this owner id.
 * - `expired`: this request was executed at or after the record's expiry; nothing was recorded.
 * - `duplicate`: another owner id has recorded an answer of the same submission: it ran twice.
 * - `unrecordable`: a value that is not a record is in its place; nothing was recorded.
 */
export type CompleteReply =
  | Answered<"recorded" | "late" | "expired" | "duplicate" | "unrecordable">
  | NoAnswer;

/**
 * Keeps locks and records. A method that takes a request and throws counts as answered `unknown`.
 *
 * A store of your own **sets `request.deadlineMs`** when it writes an acquire, and never executes
 * the acquire after that time. A method that executes it at once sets `Number.NEGATIVE_INFINITY`.
 * Without a deadline the acquire may take the key at any time, so the lock keeps deleting the key.
 */
export interface LockStore {
  /**
   * Writes one acquire, in one atomic step: checks the deadline, and sets a free key to the owner
   * id with its expiry. A foreign text without an expiry is given `maxHoldMs` to live. While a
   * request is unanswered, the next one should take another connection.
   */
  acquire(request: AcquireRequest): void;
  /** Writes one request of the extend: gives an owned key at least `ttlMs` to live from now on. */
  extend(request: LockRequest<OwnedReply>): void;
  /** Writes one request of the release: deletes an owned key, or leaves a cooldown in it. */
  release(request: ReleaseRequest): void;
  /**
   * Writes one request of the complete: the record where there is none yet, then the release, in
   * one atomic step if the store can. A record is never overwritten or lengthened. Without this method a
   * store keeps no answers: submissions and cooldowns are an `InvalidOptionError`.
   */
  complete?(request: CompleteRequest): void;
  /** Writes one request that only reads a key. Without it, `inspect` is an `InvalidOptionError`. */
  inspect?(request: InspectRequest): void;
  /**
   * Writes one request of the free, in one atomic step. A lease with the id becomes a tombstone
   * with the lease's owner id and expiry (at most `ttlMs`): no acquire takes the key, and the next
   * extend is `freed`. A cooldown, a value that begins with no UUID or, with `now`, any value with
   * the id is deleted. A tombstone is `freed` again. Without it, `free` is an `InvalidOptionError`.
   */
  free?(request: FreeRequest): void;
  /** Deletes the record of a run, in one atomic step. Without it, `forget` of a lock throws. */
  forget?(request: ForgetRequest): void;
  /** Writes the trace of an order that outlived its lock. Without it, `inspect` shows no traces. */
  outlive?(request: OutliveRequest): void;
  /** Why this store cannot keep answers although it has `complete`; `undefined` where it can. */
  readonly recordsProblem?: string | undefined;
  /**
   * Called by a lock that begins to use the store.
   * @param onReady called whenever the store has connected, also for the first time.
   * @returns a function that ends this use; the last call closes only the store's own connections.
   */
  attach(onReady: () => void): () => Promise<void>;
}
