import { AsyncResource } from "node:async_hooks";
import { type Channel, channel } from "node:diagnostics_channel";
import type { LockCommand } from "./store.ts";

/** A command, and the asynchronous context of the code that asked for the lock. */
export interface CallerCommand extends LockCommand {
  /** What the key begins with: the same for all keys of a lock. */
  readonly keyPrefix: string;
  /** How long the answer of the submission is kept; 0 without one. */
  readonly retainMs: number;
  readonly callerContext: AsyncResource | undefined;
}

export const acquireChannel: Channel = channel("submit-lock:acquire");
export const releaseChannel: Channel = channel("submit-lock:release");
export const lostChannel: Channel = channel("submit-lock:lost");
export const retireChannel: Channel = channel("submit-lock:retire");
export const completeChannel: Channel = channel("submit-lock:complete");
export const duplicateChannel: Channel = channel("submit-lock:duplicate");

const channels = [
  acquireChannel,
  releaseChannel,
  lostChannel,
  retireChannel,
  completeChannel,
  duplicateChannel,
];

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
