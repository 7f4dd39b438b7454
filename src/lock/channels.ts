import { type Channel, channel } from "node:diagnostics_channel";
import type { LostReason } from "../errors.ts";

interface OfKey {
  readonly key: string;
  readonly keyPrefix: string;
}

/** Published on `submit-lock:acquire` when an attempt has ended. */
export interface AcquireMessage extends OfKey {
  readonly outcome: "acquired" | "contended" | "completed" | "mismatched" | "unavailable";
  /** How long the attempt took. Every duration of a message is in milliseconds. */
  readonly durationMs: number;
  /** How many requests were sent: above 1 only after one was lost, late or refused. */
  readonly copies: number;
  /** `acquired`: a reply was lost or late, so the acquire was sent again with the same owner id. */
  readonly confirmed: boolean;
  /** `acquired`: the lease's fencing token, where the store has one. */
  readonly fencingToken: number | undefined;
  /** `contended`: how long the key lives unless extended; `Infinity` if the key is not a string. */
  readonly expiresInMs: number | undefined;
  /** `unavailable`: the reason. */
  readonly cause: Error | undefined;
}

/**
 * The outcome of a release. `released`: the key held the lease, and is free or in its cooldown now.
 * `gone`: the key was free before the release. `foreign`: the key held another value, such as a
 * later lease. `freed`: a person had taken the lock away. `unconfirmed`: Redis has not answered in
 * `acquireTimeoutMs` or denies the release, which goes on; at worst the key expires by its TTL.
 * After `complete`, a release is `released` for `recorded`, `unconfirmed` for `unconfirmed`, else
 * `gone`.
 */
export type ReleaseOutcome = "released" | "gone" | "freed" | "foreign" | "unconfirmed";

/** Published on `submit-lock:release` with the outcome of a release; not after `complete`. */
export interface ReleaseMessage extends OfKey {
  readonly outcome: ReleaseOutcome;
  /** From the call of `release` to its outcome. */
  readonly durationMs: number;
  /** From before the acquire was sent to the call of `release`. */
  readonly heldMs: number;
  /** The reason of an `unconfirmed` outcome. */
  readonly cause: Error | undefined;
}

/**
 * The outcome of a complete. `recorded`: the answer is kept, and as a rule the lock is released.
 * `late`: the answer is kept, but the key no longer held the lease. `duplicate`: another run of the
 * submission had recorded its answer, so the submission ran twice. `expired`: Redis got the
 * complete later than `retainMs` after its call; nothing is kept. `unconfirmed`: nothing is known
 * to be kept, because Redis has not answered within 2 × `acquireTimeoutMs` + `ttlMs` of the call
 * (the complete goes on being sent), a foreign value is under the record's key, the lock was closed,
 * or `release` was called before.
 */
export type CompleteOutcome = "recorded" | "late" | "duplicate" | "expired" | "unconfirmed";

/**
 * Published on `submit-lock:complete` once for each complete, at its end. The caller may have got
 * `unconfirmed` before: the complete is sent for ten minutes (for `maxHoldMs` behind 1,000 others),
 * or for `retainMs` if that is shorter. After an `unconfirmed` message it is not sent again.
 */
export interface CompleteMessage extends OfKey {
  readonly outcome: CompleteOutcome;
  /** The submission's 22 characters, as the order table and `submit-lock answers` show them. */
  readonly submission: string | undefined;
  /** From the call of `complete` to its outcome. */
  readonly durationMs: number;
  /** From before the acquire was sent to the call of `complete`. */
  readonly heldMs: number;
  /** The length of the record, in characters; in bytes if it is sealed, or its body is bytes. */
  readonly length: number;
  /** No body or value is kept, because unanswered records would then have over 8 Mi characters. */
  readonly bodyDropped: boolean;
  /** The reason of an `unconfirmed` outcome. */
  readonly cause: Error | undefined;
}

/** Published on `submit-lock:duplicate` when a submission is proven to have run twice. */
export interface DuplicateMessage {
  readonly key: string;
  readonly keyPrefix: string;
}

/** Published on `submit-lock:forget` when a person has deleted the record of a submission. */
export interface ForgetMessage extends OfKey {
  readonly submission: string | undefined;
  readonly by: string;
  readonly reason: string;
  /** How long ago the submission was completed, in milliseconds. */
  readonly ageMs: number;
}

/** Published on `submit-lock:lost` when a lease is lost before `release` or `complete`. */
export interface LostMessage extends OfKey {
  readonly outcome: LostReason;
  readonly fencingToken: number | undefined;
  /** From before the acquire was sent to the loss. Other messages call it `heldMs`. */
  readonly durationMs: number;
}

/** Published on `submit-lock:retire` when a retire of an acquire's copies in flight has ended. */
export interface RetireMessage extends OfKey {
  /**
   * `final`: no copy can take effect any more. `abandoned`: a copy may still take the key, which
   * then expires.
   */
  readonly outcome: "final" | "abandoned";
  readonly durationMs: number;
}

/** Published on `submit-lock:replay` when a guard repeats an answer that was kept or told. */
export interface ReplayMessage extends OfKey {
  /** The submission's 22 characters: equal in the message of the complete, if the answer is kept. */
  readonly submission: string | undefined;
  /** How long ago the submission was completed, in milliseconds. */
  readonly ageMs: number;
  /** The repeated answer is not kept: only clients that waited for the first request get it. */
  readonly isTold: boolean;
  /** The id's origin: the `Idempotency-Key` header, or the option `submissionId` (`derived`). */
  readonly source: "key" | "derived";
}

/** Published on `submit-lock:store` when an outage of the store begins for a lock, and when it ends. */
export interface StoreMessage {
  /**
   * `away`: an attempt is unavailable, or a lease was not extended for `acquireTimeoutMs`. `back`:
   * the store has answered, and no attempt or extend failed in the 2 × `acquireTimeoutMs` after that.
   */
  readonly outcome: "away" | "back";
  /** `away`: since the first request without an answer. `back`: how long the outage was. */
  readonly durationMs: number;
  readonly keyPrefix: string;
  /** `away`: the reason. */
  readonly cause: Error | undefined;
}

/**
 * Published on `submit-lock:refusal` when a guard refuses a request whose client waits, also where
 * the application's error handler answers. A request with a kept or told answer has no message, nor
 * one that fails because `userId` or `submissionId` threw or returned a value of a wrong type.
 * A request that runs has one only if it fails because its lease is lost (`submit_lock_lost`).
 */
export interface RefusalMessage {
  /** The value of the header `Submit-Lock-Code`. */
  readonly code: string;
  /** The status of the guard's own answer; a function such as `onContended` may send another. */
  readonly status: number;
  /** The submission's 22 characters; `undefined` where the request has no submission. */
  readonly submission: string | undefined;
  /** The user's key; `undefined` without a user. */
  readonly key: string | undefined;
  readonly keyPrefix: string;
}

/** The names of a lock's channels in `node:diagnostics_channel`, with their messages' types. */
export interface SubmitLockChannels {
  "submit-lock:acquire": AcquireMessage;
  "submit-lock:release": ReleaseMessage;
  "submit-lock:lost": LostMessage;
  "submit-lock:retire": RetireMessage;
  "submit-lock:complete": CompleteMessage;
  "submit-lock:duplicate": DuplicateMessage;
  "submit-lock:forget": ForgetMessage;
  "submit-lock:store": StoreMessage;
  "submit-lock:replay": ReplayMessage;
  "submit-lock:refusal": RefusalMessage;
}

export type ChannelOf<Message> = Channel & { readonly message?: Message };

export const acquireChannel: ChannelOf<AcquireMessage> = channel("submit-lock:acquire");
export const releaseChannel: ChannelOf<ReleaseMessage> = channel("submit-lock:release");
export const lostChannel: ChannelOf<LostMessage> = channel("submit-lock:lost");
export const retireChannel: ChannelOf<RetireMessage> = channel("submit-lock:retire");
export const completeChannel: ChannelOf<CompleteMessage> = channel("submit-lock:complete");
export const duplicateChannel: ChannelOf<DuplicateMessage> = channel("submit-lock:duplicate");
export const forgetChannel: ChannelOf<ForgetMessage> = channel("submit-lock:forget");
export const storeChannel: ChannelOf<StoreMessage> = channel("submit-lock:store");
export const replayChannel: ChannelOf<ReplayMessage> = channel("submit-lock:replay");
export const refusalChannel: ChannelOf<RefusalMessage> = channel("submit-lock:refusal");

/** The channels whose messages are published in the context of the code that asked for the lock. */
export const lockChannels: readonly Channel[] = [
  ...[acquireChannel, releaseChannel, lostChannel],
  ...[retireChannel, completeChannel, duplicateChannel, forgetChannel],
];
