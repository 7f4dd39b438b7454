import { setTimeout as sleep } from "node:timers/promises";
import { checkMs, checkOptionNames } from "./options.ts";

/** For `withLock`. */
export interface WithLockOptions {
  /**
   * How long to go on trying while somebody else holds the lock or Redis is away, in milliseconds;
   * 0 to 600 000. Waiting is for jobs: a click that waits for the first becomes a second order.
   * @defaultValue 0, one attempt
   */
  readonly waitMs?: number | undefined;
}

export function resolveWaitMs(options: WithLockOptions): number {
  checkOptionNames("withLock", options, ["waitMs"]);
  const { waitMs = 0 } = options;
  return checkMs("waitMs", waitMs, 0, 600_000);
}

/**
 * The pause before the next attempt: random, so that waiters do not march in step, around a mean
 * that doubles from 25 to 250 ms; never beyond `endsAt`, so that the last attempt is made just
 * before the patience is at its end.
 */
export async function pause(round: number, endsAt: number): Promise<void> {
  const mean = Math.min(25 * 2 ** round, 250);
  const jittered = mean * (0.5 + Math.random());
  await sleep(Math.max(0, Math.min(jittered, endsAt - performance.now())));
}

/** Resolves with the promise, or with `undefined` after the time. */
export async function within<Value>(
  ms: number,
  promise: Promise<Value>,
): Promise<Value | undefined> {
  let timer: NodeJS.Timeout | undefined;
  const timeUp = new Promise<undefined>((resolve) => {
    timer = setTimeout(() => resolve(undefined), ms);
  });
  const first = await Promise.race([promise, timeUp]);
  clearTimeout(timer);
  return first;
}
