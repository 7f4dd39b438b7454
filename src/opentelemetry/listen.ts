import { subscribe, unsubscribe } from "node:diagnostics_channel";
import type { SubmitLockChannels } from "../lock/channels.ts";

/**
 * Listens to a channel, of whichever copy of the package. A subscriber that throws would end the
 * process as an uncaught exception, so its first error is reported and none is passed on.
 *
 * @returns ends it.
 */
export function listen<Name extends keyof SubmitLockChannels>(
  name: Name,
  listener: (message: SubmitLockChannels[Name]) => void,
  report: (error: unknown) => void,
): () => void {
  let hasFailed = false;
  const subscriber = (message: unknown): void => {
    try {
      listener(message as SubmitLockChannels[Name]);
    } catch (error) {
      if (hasFailed) return;
      hasFailed = true;
      report(error);
    }
  };
  subscribe(name, subscriber);
  return () => void unsubscribe(name, subscriber);
}
