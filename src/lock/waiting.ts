import { atCaller, LockContendedError, LockUnavailableError } from "../errors.ts";
import { performance, sleep } from "../time.ts";
import { checkMs, checkOptionNames, invalidOption } from "../validation.ts";
import type { Attempt, Lease, LockedWork } from "./lease.ts";
import type { LockRuntime } from "./runtime.ts";

/** Options of `withLock`. */
export interface WithLockOptions {
  /**
   * How long to go on trying while the lock is contended or Redis does not answer, in milliseconds;
   * 0 to 600 000. For jobs only: a click that waits for an earlier click becomes a second order.
   * @defaultValue 0, one attempt
   */
  readonly waitMs?: number | undefined;
}

/** Pauses a random time, so that waiters do not try in step; the last try begins at `endsAt`. */
export async function pauseBeforeRetry(round: number, endsAt: number): Promise<void> {
  const jittered = Math.min(25 * 2 ** round, 250) * (0.5 + Math.random());
  await sleep(Math.max(0, Math.min(jittered, endsAt - performance.now())));
}

export async function withLock<Result>(
  runtime: LockRuntime,
  key: string,
  attempt: () => Promise<Attempt>,
  options: WithLockOptions,
  work: LockedWork<Result>,
): Promise<Result> {
  checkOptionNames("withLock", options, ["waitMs"]);
  const { waitMs = 0 } = options;
  checkMs("waitMs", waitMs, 0, 600_000);
  if (typeof work !== "function") throw invalidOption("work", "a function", work);
  const lease = await waitForLease(runtime, key, waitMs, attempt);
  try {
    return await work(lease);
  } finally {
    // `release` never rejects, so it cannot mask the result or the error of `work`.
    await lease.release();
  }
}

/** @throws the error of the last attempt, once `waitMs` is over or waiting does not help. */
async function waitForLease(
  runtime: LockRuntime,
  key: string,
  waitMs: number,
  attempt: () => Promise<Attempt>,
): Promise<Lease> {
  if (waitMs === 0) return await tryUntil(performance.now(), runtime, key, attempt, () => true);
  const { lines } = runtime;
  const line = lines.get(key) ?? new Set();
  lines.set(key, line);
  const self = {};
  line.add(self);
  const isFirst = () => line.values().next().value === self;
  try {
    return await tryUntil(performance.now() + waitMs, runtime, key, attempt, isFirst);
  } finally {
    line.delete(self);
    if (line.size === 0) lines.delete(key);
  }
}

async function tryUntil(
  endsAt: number,
  runtime: LockRuntime,
  key: string,
  attempt: () => Promise<Attempt>,
  isFirst: () => boolean,
): Promise<Lease> {
  for (let round = 0; ; round++) {
    // Each waiter tries at its beginning and at its end. In between, only the head of the line.
    while (round > 0 && !isFirst() && performance.now() < endsAt) {
      await pauseBeforeRetry(round, endsAt);
    }
    const came = await attempt();
    if (came.outcome === "acquired") return came.lease;
    const isOver = performance.now() >= endsAt;
    if (came.outcome === "unavailable") {
      if (isOver || !(came.cause instanceof LockUnavailableError)) throw atCaller(came.cause);
    } else if (isOver) {
      const { expiresInMs, isCooldown } = came;
      const other = `could not take the lock: it has another holder${ownHolder(runtime, key)}`;
      const why = isCooldown ? "could not take the lock: its cooldown is not over" : other;
      throw new LockContendedError(why, expiresInMs, { isCooldown, key });
    }
    await pauseBeforeRetry(round, endsAt);
  }
}

/** A hint for an error, where this process is the holder: a request may wait for its own lease. */
export function ownHolder({ watchdogs }: LockRuntime, key: string): string {
  const isOurs = watchdogs.armed().some((lease) => lease.isHeld && lease.command.key === key);
  return isOurs
    ? " in this process. If that is the request or the work that asks, use the lease it has: there is no second one"
    : "";
}
