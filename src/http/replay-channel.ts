import { type Channel, channel } from "node:diagnostics_channel";

/** Published on `submit-lock:replay` when a guard repeats an answer. */
export interface ReplayMessage {
  readonly key: string;
  /** How long ago it was answered, in milliseconds. */
  readonly ageMs: number;
  /** What gave the submission's id. */
  readonly source: "key" | "derived";
}

const replayChannel: Channel = channel("submit-lock:replay");

export function publishReplay(key: string, ageMs: number, source: "key" | "derived"): void {
  if (!replayChannel.hasSubscribers) return;
  const message: ReplayMessage = { key, ageMs, source };
  replayChannel.publish(message);
}
