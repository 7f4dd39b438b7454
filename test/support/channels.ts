import { channel } from "node:diagnostics_channel";
import type { SubmitLockChannels } from "../../src/index.ts";

type Name = keyof SubmitLockChannels;

export interface Recording<N extends Name> {
  readonly messages: SubmitLockChannels[N][];
  stop(): void;
}

/** Every message about a key that is published on a channel from now on. */
export function record<N extends Name>(name: N, key?: string): Recording<N> {
  const messages: SubmitLockChannels[N][] = [];
  const listener = (message: unknown): void => {
    const typed = message as SubmitLockChannels[N];
    if (key === undefined || typed.key === key) messages.push(typed);
  };
  channel(name).subscribe(listener);
  return { messages, stop: () => void channel(name).unsubscribe(listener) };
}
