import { setTimeout as sleep } from "node:timers/promises";
import { LockContendedError, LockUnavailableError } from "../errors.ts";
import type { Attempt, Lease } from "./lease.ts";

/** Options of `withLock`. */
export interface WithLockOptions {
  /**
   * How long to go on trying while the lock is contended or Redis does not answer, in milliseconds;
   * 0 to 600 000. For jobs only: a click that waits for an earlier click becomes a second order.
   * @defaultValue 0, one attempt
   */
  readonly waitMs?: number | undefined;
}

/**
 * Waits before the next attempt: for a random time, so that waiters do not try in step, around a
 * mean that doubles from 25 to 250 ms; not beyond `endsAt`, so that the last attempt begins at the
 * end of the wait.
 */
export async function pauseBeforeRetry(round: number, endsAt: number): Promise<void> {
  const mean = Math.min(25 * 2 ** round, 250);
  const jittered = mean * (0.5 + Math.random());
  await sleep(Math.max(0, Math.min(jittered, endsAt - performance.now())));
}

/**
 * @param attempt makes one attempt.
 * @throws the error of the last attempt, once `waitMs` is over or waiting does not help.
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
      // Waiting does not help against a misconfiguration or a closed lock.
      if (isOver || !(came.cause instanceof LockUnavailableError)) throw came.cause;
    } else if (isOver) {
      const why = came.isCooldown ? `${key} is in its cooldown` : `${key} has another holder`;
      const { expiresInMs, isCooldown } = came;
      throw new LockContendedError(why, expiresInMs, { isCooldown });
    }
    await pauseBeforeRetry(round, endsAt);
  }
}
