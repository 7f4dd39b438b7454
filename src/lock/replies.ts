import type { FreeResult, Inspection } from "./inspection.ts";

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
  /** The key holds the owner id all the same, and has to be given back. */
  readonly isHeld?: boolean | undefined;
}

/** The id is that of another submission, with another fingerprint. */
export interface MismatchedAnswer extends Answered<"mismatched"> {
  /** That one is still being processed; otherwise it was completed. */
  readonly inFlight: boolean;
  /** As in {@link CompletedAnswer}. */
  readonly isHeld?: boolean | undefined;
}

/** The key was held by somebody else. */
export interface ContendedAnswer extends Answered<"contended"> {
  /** The holder is at work on the very submission that was asked for. */
  readonly sameSubmission?: boolean | undefined;
  /** Nobody holds it: a cooldown is not over. */
  readonly isCooldown?: boolean | undefined;
  /** How long the other's key has to live, in milliseconds; `Infinity` for a key that is no lock, such as a list. */
  readonly expiresInMs: number;
}

/**
 * No answer to the command itself, and what of that is certain. A store that is not sure says
 * `unknown`: then the lock confirms, and deletes what the request may have left. What was wrongly
 * called `unsent` or `rejected` leaves a key that nobody owns, for as long as `ttlMs`.
 */
export type NoAnswer =
  /** Never written: certainly without effect. */
  | {
      readonly kind: "unsent";
      readonly reason: string;
      /** What lies behind the reason, where the store knows it. */
      readonly cause?: Error | undefined;
    }
  /** The store said that it did not execute the request. */
  | {
      readonly kind: "rejected";
      readonly cause: Error;
      /** The store will not execute it later either (no permission, a wrong password): waiting does not help. */
      readonly misconfigured: boolean;
      /** Misconfigured: what the store wants, for the message of the error. */
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
 * - `contended`: somebody else holds it.
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
 * has taken the lock away from this owner id. `foreign`: anything else, another's tombstone among it.
 */
export type OwnedReply =
  | Answered<"done">
  | Answered<"gone">
  | Answered<"freed">
  | Answered<"foreign">
  | NoAnswer;

/** What the key holds. */
export interface InspectedAnswer extends Answered<"inspected"> {
  readonly found: Inspection;
}

/** What became of a free. */
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
 * - `unrecordable`: something that is no record stands where it belongs; nothing was recorded.
 */
export type CompleteReply =
  | Answered<"recorded">
  | Answered<"late">
  | Answered<"expired">
  | Answered<"duplicate">
  | Answered<"unrecordable">
  | NoAnswer;
