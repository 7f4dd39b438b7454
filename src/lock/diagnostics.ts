import { AsyncResource } from "node:async_hooks";
import { type Channel, channel } from "node:diagnostics_channel";
import type {
  AcquireMessage,
  CompleteMessage,
  DuplicateMessage,
  LostMessage,
  ReleaseMessage,
  RetireMessage,
  SubmitLockChannels,
} from "./messages.ts";
import type { LockCommand } from "./store.ts";

/** A command, and the asynchronous context of the code that asked for the lock. */
export interface CallerCommand extends LockCommand {
  /** What the key begins with: the same for all keys of a lock. */
  readonly keyPrefix: string;
  /** How long the answer of the submission is kept; 0 without one. */
  readonly retainMs: number;
  readonly callerContext: AsyncResource | undefined;
}

/** A channel that knows what it tells. */
type ChannelOf<Message> = Channel & { readonly tells?: Message };

function channelOf<Name extends keyof SubmitLockChannels>(
  name: Name,
): ChannelOf<SubmitLockChannels[Name]> {
  return channel(name);
}

export const acquireChannel: ChannelOf<AcquireMessage> = channelOf("submit-lock:acquire");
export const releaseChannel: ChannelOf<ReleaseMessage> = channelOf("submit-lock:release");
export const lostChannel: ChannelOf<LostMessage> = channelOf("submit-lock:lost");
export const retireChannel: ChannelOf<RetireMessage> = channelOf("submit-lock:retire");
export const completeChannel: ChannelOf<CompleteMessage> = channelOf("submit-lock:complete");
export const duplicateChannel: ChannelOf<DuplicateMessage> = channelOf("submit-lock:duplicate");

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

export function publish<C extends ChannelOf<object>>(
  to: C,
  { callerContext }: CallerCommand,
  message: NonNullable<C["tells"]>,
): void {
  if (callerContext === undefined) to.publish(message);
  else callerContext.runInAsyncScope(() => to.publish(message));
}
