import { AsyncResource } from "node:async_hooks";
import { type Channel, channel } from "node:diagnostics_channel";
import type { LostReason } from "../errors.ts";
import type { CallerCommand } from "./runtime.ts";

/** Published on `submit-lock:acquire` when an attempt has ended. */
export interface AcquireMessage {
  readonly key: string;
  readonly keyPrefix: string;
  readonly outcome: "acquired" | "contended" | "completed" | "mismatched" | "unavailable";
  /** In milliseconds, like every duration here. */
  readonly durationMs: number;
  /** How many copies of the request were written; more than one means that a reply was lost or late. */
  readonly copies: number;
  /** Acquired: a reply had been lost or was late, and the lock was confirmed with the same owner id. */
  readonly confirmed: boolean;
  /** Acquired: the lease's fencing token, where the store has one. */
  readonly fencingToken: number | undefined;
  /** Contended: how long the other's key has to live; `Infinity` for a key that is no lock. */
  readonly expiresInMs: number | undefined;
  /** Why it was unavailable. */
  readonly cause: Error | undefined;
}

/**
 * The outcome of a release. `released`: the key was ours and is deleted. `gone`, `foreign`: the
 * lease had run out before, and the key is free or another holder's; nothing was deleted. `freed`: a
 * person had taken the lock away, and nothing was deleted.
 * `unconfirmed`: Redis has not answered within `acquireTimeoutMs`; the deletion goes on in the
 * background, and at worst the key runs out within its TTL.
 */
export type ReleaseOutcome = "released" | "gone" | "freed" | "foreign" | "unconfirmed";

/** Published on `submit-lock:release` when a release was answered, or not within `acquireTimeoutMs`. */
export interface ReleaseMessage {
  readonly key: string;
  readonly keyPrefix: string;
  readonly outcome: ReleaseOutcome;
  /** From the release to its answer. */
  readonly durationMs: number;
  /** From before the acquire was sent to the release. */
  readonly heldMs: number;
  /** Why it is unconfirmed. */
  readonly cause: Error | undefined;
}

/**
 * The outcome of a complete. `recorded`: the answer is kept and the lock is free. `late`: the answer
 * is kept, but the lease had been lost before. `duplicate`: another run of the same submission had
 * recorded its answer, so it ran twice. `expired`: it came after the answer's time; nothing is kept.
 * `unconfirmed`: nothing is known to be kept. Redis has not answered within 2 × `acquireTimeoutMs` +
 * `ttlMs` or could not keep it (it goes on in the background for up to `maxHoldMs`), or the lease
 * was released before.
 */
export type CompleteOutcome = "recorded" | "late" | "duplicate" | "expired" | "unconfirmed";

/** Published on `submit-lock:complete` when a complete was answered, or was given up. */
export interface CompleteMessage {
  readonly key: string;
  readonly keyPrefix: string;
  readonly outcome: CompleteOutcome;
  /** From the complete to its answer. */
  readonly durationMs: number;
  /** From before the acquire was sent to the complete. */
  readonly heldMs: number;
  /** The length of the record, in characters. */
  readonly length: number;
  /** The answer's body was not kept, because more than 8 Mi characters of records waited in this lock. */
  readonly bodyDropped: boolean;
  /** Why it is unconfirmed. */
  readonly cause: Error | undefined;
}

/** Published on `submit-lock:duplicate` when a submission is proven to have run twice. */
export interface DuplicateMessage {
  readonly key: string;
  readonly keyPrefix: string;
}

/** Published on `submit-lock:lost` when a lease was lost under its holder. */
export interface LostMessage {
  readonly key: string;
  readonly keyPrefix: string;
  readonly outcome: LostReason;
  readonly fencingToken: number | undefined;
  /** From before the acquire was sent to the loss. */
  readonly durationMs: number;
}

/** Published on `submit-lock:retire` when an owner id that had requests in flight is given up for good. */
export interface RetireMessage {
  readonly key: string;
  readonly keyPrefix: string;
  /** `final`: no request can take effect any more. `abandoned`: Redis did not answer in time; the key runs out by itself. */
  readonly outcome: "final" | "abandoned";
  readonly durationMs: number;
}

/** Published on `submit-lock:replay` when a guard repeats an answer. */
export interface ReplayMessage {
  readonly key: string;
  /** How long ago it was answered, in milliseconds. */
  readonly ageMs: number;
  /** The origin of the submission's id. */
  readonly source: "key" | "derived";
}

/** The names of a lock's channels in `node:diagnostics_channel`, with the type of their messages. */
export interface SubmitLockChannels {
  "submit-lock:acquire": AcquireMessage;
  "submit-lock:release": ReleaseMessage;
  "submit-lock:lost": LostMessage;
  "submit-lock:retire": RetireMessage;
  "submit-lock:complete": CompleteMessage;
  "submit-lock:duplicate": DuplicateMessage;
}

/** A channel that knows the type of its messages. */
type ChannelOf<Message> = Channel & { readonly message?: Message };

export const acquireChannel: ChannelOf<AcquireMessage> = channel("submit-lock:acquire");
export const releaseChannel: ChannelOf<ReleaseMessage> = channel("submit-lock:release");
export const lostChannel: ChannelOf<LostMessage> = channel("submit-lock:lost");
export const retireChannel: ChannelOf<RetireMessage> = channel("submit-lock:retire");
export const completeChannel: ChannelOf<CompleteMessage> = channel("submit-lock:complete");
export const duplicateChannel: ChannelOf<DuplicateMessage> = channel("submit-lock:duplicate");
const replayChannel: Channel = channel("submit-lock:replay");

const lockChannels: readonly Channel[] = [
  acquireChannel,
  releaseChannel,
  lostChannel,
  retireChannel,
  completeChannel,
  duplicateChannel,
];

/**
 * Captures the caller's async context if a channel has subscribers. Replies arrive in the context of
 * the request that opened the batch; without this, subscribers would read that request's
 * `AsyncLocalStorage`.
 */
export function captureContext(): AsyncResource | undefined {
  for (const each of lockChannels) if (each.hasSubscribers) return new AsyncResource("submit-lock");
  return undefined;
}

/** Publishes about the command's key, in the async context of the caller that asked for the lock. */
export function publish<Message extends { readonly key: string; readonly keyPrefix: string }>(
  to: ChannelOf<Message>,
  { callerContext, key, keyPrefix }: CallerCommand,
  more: Omit<Message, "key" | "keyPrefix">,
): void {
  const message = { key, keyPrefix, ...more };
  if (callerContext === undefined) to.publish(message);
  else callerContext.runInAsyncScope(() => to.publish(message));
}

/** Publishes in the current context: a guard repeats an answer in its own request's. */
export function publishReplay(message: ReplayMessage): void {
  if (replayChannel.hasSubscribers) replayChannel.publish(message);
}
