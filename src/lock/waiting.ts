import { LockContendedError, LockUnavailableError } from "../errors.ts";
import { performance, sleep } from "../time.ts";
import { within } from "../timer-wheel.ts";
import type { Attempt, Lease } from "./lease.ts";
import { completedOf, type StoredAnswer } from "./record.ts";
import { type LockRuntime, write } from "./runtime.ts";
import type { AcquireReply, LockCommand, LockStore } from "./store.ts";

/** Options of `withLock`. */
export interface WithLockOptions {
  /**
   * How long to go on trying while the lock is contended or Redis does not answer, in milliseconds;
   * 0 to 600 000. For jobs only: a click that waits for an earlier click becomes a second order.
   * @defaultValue 0, one attempt
   */
  readonly waitMs?: number | undefined;
}

/** A random time, so that waiters do not try in step; the last attempt begins at `endsAt`. */
export async function pauseBeforeRetry(round: number, endsAt: number): Promise<void> {
  const mean = Math.min(25 * 2 ** round, 250);
  const jittered = mean * (0.5 + Math.random());
  await sleep(Math.max(0, Math.min(jittered, endsAt - performance.now())));
}

/** @throws the error of the last attempt, once `waitMs` is over or waiting does not help. */
export async function waitForLease(
  runtime: LockRuntime,
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
      if (isOver || !(came.cause instanceof LockUnavailableError)) throw came.cause;
    } else if (isOver) {
      const { expiresInMs, isCooldown } = came;
      const other = `the lock has another holder${ownHolder(runtime, key)}`;
      const why = isCooldown ? "the lock is in its cooldown" : other;
      throw new LockContendedError(why, expiresInMs, { isCooldown, key });
    }
    await pauseBeforeRetry(round, endsAt);
  }
}

/** For an error: a guarded request that asks for its own user's lock again is its own rival. */
export function ownHolder({ watchdogs }: LockRuntime, key: string): string {
  const isOurs = watchdogs.armed().some((lease) => lease.isHeld && lease.command.key === key);
  return isOurs
    ? " in this process. If that is the request or the work that asks, use the lease it has: there is no second one"
    : "";
}

/** The state of a submission. */
export type LookUp =
  /** It is not being processed, and no answer is kept. */
  | { readonly outcome: "none" }
  /** It is being processed. */
  | { readonly outcome: "in-flight" }
  /** It was completed: by an HTTP answer, or by `once`, whose value is `answer.returned`. */
  | { readonly outcome: "completed"; readonly answer: StoredAnswer; readonly ageMs: number }
  | { readonly outcome: "mismatched"; readonly inFlight: boolean }
  /** The store gave no usable answer. */
  | { readonly outcome: "unknown" };

/** Sends one acquire that takes nothing. Settles within `commandTimeoutMs`. */
export async function lookUp(store: LockStore, command: LockCommand): Promise<LookUp> {
  const reply = await within(
    command.times.commandTimeoutMs,
    new Promise<AcquireReply>((answer) =>
      write(store, "acquire", { command, deadlineMs: undefined, onlyLooks: true, answer }),
    ),
  );
  switch (reply?.kind) {
    case "completed": {
      const completed = completedOf(reply);
      if (completed === undefined) return { outcome: "unknown" };
      return { outcome: "completed", ...completed };
    }
    case "mismatched":
      return { outcome: "mismatched", inFlight: reply.inFlight };
    case "contended":
      return { outcome: reply.sameSubmission === true ? "in-flight" : "none" };
    case "outOfWindow":
      return { outcome: "none" };
    default:
      return { outcome: "unknown" };
  }
}

/**
 * Looks a submission up until it is no longer in flight, and never takes the lock: a repeat must
 * not run. `once` and the guards wait by this function alone.
 *
 * @param acquireTimeoutMs the longest silence of the store, in milliseconds.
 * @returns `in-flight` at the end of `waitMs`, or once abandoned; `unknown` where the store has
 * answered no look-up for `acquireTimeoutMs`, or not the last one.
 */
export async function waitForEnd(
  look: () => Promise<LookUp>,
  waitMs: number,
  acquireTimeoutMs: number,
  isAbandoned: () => boolean = () => false,
): Promise<LookUp> {
  const endsAt = performance.now() + waitMs;
  let silentSince: number | undefined;
  for (let round = 0; performance.now() < endsAt; round++) {
    await pauseBeforeRetry(round, endsAt);
    if (isAbandoned()) break;
    const lookedAt = performance.now();
    const seen = await look();
    if (seen.outcome === "unknown") silentSince ??= lookedAt;
    else if (seen.outcome === "in-flight") silentSince = undefined;
    else return seen;
    // One lost reply is not an outage. A silent store is waited for as long as by an acquire.
    if (performance.now() - (silentSince ?? Infinity) >= acquireTimeoutMs) break;
  }
  return { outcome: silentSince === undefined ? "in-flight" : "unknown" };
}

export function silentStore(): LockUnavailableError {
  return new LockUnavailableError("the store did not say whether the same submission has ended");
}
