import { setTimeout as sleep } from "node:timers/promises";
import { type Contender, callBoundMs, settled } from "./library.ts";

const everyMs = 20;

/** What became of the retries of one submission. */
export interface Retries {
  /** When one got the lock. */
  readonly ranAt: readonly number[];
  /** When one was given the answer for the first time; `undefined` if none was. */
  readonly replayedAt: number | undefined;
  /** How many were given another answer. */
  readonly wrongAnswers: number;
  /** One had not settled at the end. */
  readonly pending: boolean;
}

/** Submits the same again and again on a healthy connection, until it is told to stop. */
export function startRetries(
  { retry }: Contender,
  user: string,
): { stop(): Promise<Retries | undefined> } {
  if (retry === undefined) return { stop: async () => undefined };
  let stopped = false;
  const run = async (): Promise<Retries> => {
    const ranAt: number[] = [];
    let replayedAt: number | undefined;
    let wrongAnswers = 0;
    let pending = false;
    while (!stopped && !pending) {
      const end = await settled(retry(user), callBoundMs);
      pending = end.kind === "pending";
      if (end.kind === "fulfilled") {
        if (end.value === "ran") ranAt.push(performance.now());
        if (end.value === "replayed") replayedAt ??= performance.now();
        if (end.value === "another answer") wrongAnswers++;
      }
      await sleep(everyMs);
    }
    return { ranAt, replayedAt, wrongAnswers, pending };
  };
  const running = run();
  return {
    stop() {
      stopped = true;
      return running;
    },
  };
}
