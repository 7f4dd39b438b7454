import { AsyncResource } from "node:async_hooks";
import { type Channel, channel } from "node:diagnostics_channel";
import type { LostReason } from "../errors.ts";
import type { LockCommand } from "./store.ts";

/** Published on `submit-lock:acquire` when an attempt has ended. */
export interface AcquireMessage {
  readonly key: string;
  readonly outcome: "acquired" | "contended" | "unavailable";
  /** In milliseconds, like every duration here. */
  readonly durationMs: number;
  /** How many copies of the request were written; more than one means that a reply was lost or late. */
  readonly copies: number;
  /** Why it was unavailable. */
  readonly cause: Error | undefined;
}

/**
 * What became of a release. `released`: the key was ours and is deleted. `gone`, `foreign`: the
 * lease had run out before, and the key is free or somebody else's; nothing was deleted.
 * `unconfirmed`: Redis has not answered within `acquireTimeoutMs`; the deletion goes on in the
 * background, and at worst the key runs out within its TTL.
 */
export type ReleaseOutcome = "released" | "gone" | "foreign" | "unconfirmed";

/** Published on `submit-lock:release` when a release was answered, or not within `acquireTimeoutMs`. */
export interface ReleaseMessage {
  readonly key: string;
  readonly outcome: ReleaseOutcome;
  /** From the release to its answer. */
  readonly durationMs: number;
  /** From before the acquire was sent to the release. */
  readonly heldMs: number;
  /** Why it is unconfirmed. */
  readonly cause: Error | undefined;
}

/** Published on `submit-lock:lost` when a lease was lost under its holder. */
export interface LostMessage {
  readonly key: string;
  readonly outcome: LostReason;
  /** From before the acquire was sent to the loss. */
  readonly durationMs: number;
}

/** Published on `submit-lock:retire` when an owner id that had requests in flight is given up for good. */
export interface RetireMessage {
  readonly key: string;
  /** `final`: no request can take effect any more. `abandoned`: Redis did not answer in time; the key runs out by itself. */
  readonly outcome: "final" | "abandoned";
  readonly durationMs: number;
}

/** The names of the channels, as `node:diagnostics_channel` knows them, with the type of their messages. */
export interface SubmitLockChannels {
  "submit-lock:acquire": AcquireMessage;
  "submit-lock:release": ReleaseMessage;
  "submit-lock:lost": LostMessage;
  "submit-lock:retire": RetireMessage;
}

/** A command, and the asynchronous context of the code that asked for the lock. */
export interface CallerCommand extends LockCommand {
  readonly callerContext: AsyncResource | undefined;
}

export const acquireChannel: Channel = channel("submit-lock:acquire");
export const releaseChannel: Channel = channel("submit-lock:release");
export const lostChannel: Channel = channel("submit-lock:lost");
export const retireChannel: Channel = channel("submit-lock:retire");

const channels = [acquireChannel, releaseChannel, lostChannel, retireChannel];

/**
 * The asynchronous context of the caller, if anybody listens: an answer may come in the context of
 * another request, whose `AsyncLocalStorage` a subscriber would take for that of this one.
 */
export function captureContext(): AsyncResource | undefined {
  return channels.some((each) => each.hasSubscribers)
    ? new AsyncResource("submit-lock")
    : undefined;
}

export function publish(to: Channel, { callerContext }: CallerCommand, message: object): void {
  if (callerContext === undefined) to.publish(message);
  else callerContext.runInAsyncScope(() => to.publish(message));
}
