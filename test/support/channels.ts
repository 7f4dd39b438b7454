import { channel } from "node:diagnostics_channel";
import { onTestFinished, vi } from "vitest";
import type { SubmitLockChannels } from "../../src/index.ts";

/** Every message about a key that is published on a channel until the test is over. */
export function record<N extends keyof SubmitLockChannels>(
  name: N,
  key?: string,
): SubmitLockChannels[N][] {
  const messages: SubmitLockChannels[N][] = [];
  const listener = (message: unknown): void => {
    const typed = message as SubmitLockChannels[N];
    if (key === undefined || Object(typed).key === key) messages.push(typed);
  };
  channel(name).subscribe(listener);
  onTestFinished(() => void channel(name).unsubscribe(listener));
  return messages;
}

/**
 * The package's process warnings from here on. Node's and other libraries' are not among them: they
 * may be about what an earlier file of this process has left.
 */
export function recordWarnings(): { readonly calls: unknown[][]; restore(): void } {
  const calls: unknown[][] = [];
  const spy = vi.spyOn(process, "emitWarning").mockImplementation((...call: unknown[]) => {
    if (Object(call[1]).type === "SubmitLockWarning") calls.push(call);
  });
  return { calls, restore: () => spy.mockRestore() };
}
