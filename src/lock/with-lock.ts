import { setTimeout as sleep } from "node:timers/promises";
import { LockContendedError, LockUnavailableError } from "../errors.ts";
import type { Attempt, Lease } from "./lease.ts";

/** For `withLock`. */
export interface WithLockOptions {
  /**
   * How long to go on trying while another process holds the lock or Redis is away, in milliseconds;
   * 0 to 600 000. Waiting is for jobs: a click that waits for the first becomes a second order.
   * @defaultValue 0, one attempt
   */
  readonly waitMs?: number | undefined;
}

/**
 * The pause before the next attempt: random, so that waiters do not try in step, around a mean that
 * doubles from 25 to 250 ms; never beyond `endsAt`, so that the last attempt comes just before the
 * end of the wait.
 */
export async function pauseBeforeRetry(round: number, endsAt: number): Promise<void> {
  const mean = Math.min(25 * 2 ** round, 250);
  const jittered = mean * (0.5 + Math.random());
  await sleep(Math.max(0, Math.min(jittered, endsAt - performance.now())));
}

/**
 * @param attempt tries once more.
 * @throws the error of the last attempt, once `waitMs` is over or waiting cannot help.
 */
export async function waitForLease(
  key: string,
  waitMs: number,
  attempt: () => Promise<Attempt>,
): Promise<Lease> {
  const endsAt = performance.now() + waitMs;
  for (let round = 0; ; round++) {
    const came = await attempt();
    if (came.outcome === "acquired") return came.lease;
    const isOver = performance.now() >= endsAt;
    if (came.outcome === "unavailable") {
      // Waiting helps against nothing else, such as a misconfiguration.
      if (isOver || !(came.cause instanceof LockUnavailableError)) throw came.cause;
    } else if (isOver) {
      const why = came.isCooldown ? `${key} is in its cooldown` : `another process holds ${key}`;
      throw new LockContendedError(why, came.expiresInMs);
    }
    await pauseBeforeRetry(round, endsAt);
  }
}
