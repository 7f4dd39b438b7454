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

/** By lock and key, who waits for a lease: the first asks Redis for all of them. */
const lines = new WeakMap<LockRuntime, Map<string, Set<object>>>();

/** @throws the error of the last attempt, once `waitMs` is over or waiting does not help. */
export async function waitForLease(
  runtime: LockRuntime,
  key: string,
  waitMs: number,
  attempt: () => Promise<Attempt>,
): Promise<Lease> {
  if (waitMs === 0) return await tryUntil(performance.now(), runtime, key, attempt, () => true);
  const ofLock = lines.get(runtime) ?? new Map<string, Set<object>>();
  lines.set(runtime, ofLock);
  const line = ofLock.get(key) ?? new Set<object>();
  ofLock.set(key, line);
  const self = {};
  line.add(self);
  const isFirst = () => line.values().next().value === self;
  try {
    return await tryUntil(performance.now() + waitMs, runtime, key, attempt, isFirst);
  } finally {
    line.delete(self);
    if (line.size === 0) ofLock.delete(key);
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
    // Everybody asks at first, and at the end of the own time.
    while (round > 0 && !isFirst() && performance.now() < endsAt) {
      await pauseBeforeRetry(round, endsAt);
    }
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
 * How many callers of one process may wait for one submission, and for all submissions of a lock
 * together: what one customer repeats must not take the memory and the Redis of the others.
 */
export const mostWaiting = { forOne: 64, inAll: 1_000 } as const;

interface Waiter {
  readonly since: number;
  readonly endsAt: number;
  readonly isAbandoned: () => boolean;
  readonly settle: (seen: LookUp) => void;
  readonly fail: (error: unknown) => void;
}

/**
 * Looks one submission up for all callers of this process that wait for it: one look at a time,
 * small until the submission is over, and then its answer once for all.
 */
class Watch {
  readonly waiters = new Set<Waiter>();
  readonly #look: () => Promise<LookUp>;
  readonly #acquireTimeoutMs: number;
  #silentSince: number | undefined;

  constructor(look: () => Promise<LookUp>, acquireTimeoutMs: number) {
    this.#look = look;
    this.#acquireTimeoutMs = acquireTimeoutMs;
  }

  /** @param over called as soon as nobody waits any more: a later caller needs another watch. */
  async run(over: () => void): Promise<void> {
    for (let round = 0; this.waiters.size > 0; round++) {
      const ends = [...this.waiters].map(({ endsAt }) => endsAt);
      await pauseBeforeRetry(round, Math.min(...ends));
      this.#settle(undecided, ({ isAbandoned }) => isAbandoned());
      if (this.waiters.size === 0) break;
      const lookedAt = performance.now();
      try {
        this.#saw(await this.#look(), lookedAt);
      } catch (error) {
        // The lock was closed.
        for (const { fail } of this.waiters) fail(error);
        this.waiters.clear();
      }
    }
    over();
  }

  #saw(seen: LookUp, lookedAt: number): void {
    const isOver = seen.outcome !== "unknown" && seen.outcome !== "in-flight";
    // A caller that came later may be waiting for a run that began behind this look.
    if (isOver) this.#settle(seen, ({ since }) => since <= lookedAt);
    if (seen.outcome === "unknown") this.#silentSince ??= lookedAt;
    else this.#silentSince = undefined;
    const left = this.#silentSince === undefined ? undecided : silent;
    this.#settle(left, ({ endsAt }) => endsAt <= lookedAt);
    // One lost reply is not an outage. A silent store is waited for as long as by an acquire.
    const isSilent = performance.now() - (this.#silentSince ?? Infinity) >= this.#acquireTimeoutMs;
    if (isSilent) this.#settle(silent, ({ since }) => since <= (this.#silentSince ?? 0));
  }

  #settle(seen: LookUp, isMeant: (waiter: Waiter) => boolean): void {
    for (const waiter of this.waiters) {
      if (!isMeant(waiter)) continue;
      this.waiters.delete(waiter);
      waiter.settle(seen);
    }
  }
}

const undecided: LookUp = { outcome: "in-flight" };
const silent: LookUp = { outcome: "unknown" };

/** What the callers of one lock wait for, by the submission's identity. */
const watches = new WeakMap<object, Map<string, Watch>>();

/** How many callers wait for a submission of this lock. */
export function waitingOn(lock: object): number {
  let count = 0;
  for (const { waiters } of watches.get(lock)?.values() ?? []) count += waiters.size;
  return count;
}

/**
 * Waits until a submission is no longer in flight, and never takes the lock: a repeat must not run.
 * `once` and the guards wait by this function alone.
 *
 * @param identity of the submission and its content: equal ones share their looks.
 * @param acquireTimeoutMs the longest silence of the store, in milliseconds.
 * @returns `in-flight` at the end of `waitMs`, once abandoned, or at once where too many wait;
 * `unknown` where the store has answered no look-up for `acquireTimeoutMs`, or not the last one.
 */
export async function waitForEnd(
  lock: object,
  identity: string,
  look: () => Promise<LookUp>,
  waitMs: number,
  acquireTimeoutMs: number,
  isAbandoned: () => boolean = () => false,
): Promise<LookUp> {
  const ofLock = watches.get(lock) ?? new Map<string, Watch>();
  watches.set(lock, ofLock);
  const known = ofLock.get(identity);
  const watch = known ?? new Watch(look, acquireTimeoutMs);
  const { forOne, inAll } = mostWaiting;
  const isCrowded = watch.waiters.size >= forOne || waitingOn(lock) >= inAll;
  if (waitMs === 0 || isCrowded) return undecided;
  const since = performance.now();
  return await new Promise((settle, fail) => {
    watch.waiters.add({ since, endsAt: since + waitMs, isAbandoned, settle, fail });
    if (known !== undefined) return;
    ofLock.set(identity, watch);
    void watch.run(() => ofLock.delete(identity));
  });
}

export function silentStore(): LockUnavailableError {
  return new LockUnavailableError("the store did not say whether the same submission has ended");
}
