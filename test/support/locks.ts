import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import type { AcquireReply, LockCommand, LockTimes } from "../../src/index.ts";
import {
  type Attempt,
  type Lease,
  type SubmissionAttempt,
  SubmitLock,
  type SubmitLockOptions,
} from "../../src/index.ts";
import type { AskedRequest } from "./asking.ts";
import { freshUser } from "./ids.ts";
import { until } from "./until.ts";

const opened = new Set<SubmitLock>();

/** A lock that `closeLocks` closes. */
export function openLock(options: SubmitLockOptions): SubmitLock {
  const lock = new SubmitLock(options);
  opened.add(lock);
  return lock;
}

/** Closes every lock of `openLock` without waiting for its leases. Meant for `afterEach`. */
export async function closeLocks(): Promise<void> {
  const closing = [...opened].map((lock) => lock.close({ timeoutMs: 0 }));
  opened.clear();
  await Promise.all(closing);
}

/** The attempt if it acquired, else an error that says what happened instead. */
export function acquired(attempt: SubmissionAttempt): Extract<Attempt, { outcome: "acquired" }> {
  if (attempt.outcome === "acquired") return attempt;
  const cause = attempt.outcome === "unavailable" ? attempt.cause : undefined;
  throw new Error(`expected the lock to be acquired, but it was ${attempt.outcome}`, { cause });
}

/**
 * A lease for a test that is about something else. A machine that is too busy to answer within the
 * attempt's budget is asked again, until what that attempt may have left is gone; somebody else's lock
 * is an error at once.
 */
export function leaseOf(lock: SubmitLock, user: string): Promise<Lease> {
  return leaseFrom(() => lock.acquire(user));
}

/** The same, of any attempt. */
export async function leaseFrom(ask: () => Promise<SubmissionAttempt>): Promise<Lease> {
  let wasUnavailable = false;
  for (let left = 100; ; left--) {
    const attempt = await ask();
    wasUnavailable ||= attempt.outcome === "unavailable";
    if (attempt.outcome === "acquired" || !wasUnavailable || left === 0) {
      return acquired(attempt).lease;
    }
    await sleep(10);
  }
}

export function causeOf(attempt: SubmissionAttempt): Error {
  if (attempt.outcome === "unavailable") return attempt.cause;
  throw new Error(`expected the lock to be unavailable, but it was ${attempt.outcome}`);
}

/** What an error and its causes say: a text of the server is in a cause alone. */
export function saidBy(error: Error): string {
  const { cause, message } = error;
  return cause instanceof Error ? `${message} < ${saidBy(cause)}` : message;
}

/** Bounds that a busy machine keeps: nothing here waits for them to pass. */
export const roomyTimes: LockTimes = {
  ttlMs: 4_000,
  maxHoldMs: 8_000,
  acquireTimeoutMs: 2_000,
  commandTimeoutMs: 1_000,
};

/** Resolves when the lease was extended so many times: what it has left rises then, and only then. */
export async function extensions(lease: Lease, count: number): Promise<void> {
  let last = lease.remainingMs();
  let seen = 0;
  const rose = () => {
    const now = lease.remainingMs();
    if (now > last) seen++;
    last = now;
    return seen >= count;
  };
  await until(rose, { what: `${count} extensions`, boundMs: 30_000 });
}

/** A command of a new owner, on a new key unless one is given. */
export function commandOf(given: Partial<LockCommand> = {}): LockCommand {
  return {
    key: `lock:test:${freshUser()}`,
    ownerId: randomUUID(),
    times: roomyTimes,
    holder: "",
    submission: undefined,
    ...given,
  };
}

/** How long the key has to live, as a rival is told, or an error if it was not contended. */
export async function expiresInMs(copy: AskedRequest<AcquireReply>): Promise<number> {
  const reply = await copy.reply;
  if (reply.kind === "contended") return reply.expiresInMs;
  throw new Error(`expected the key to be contended, but the answer was ${reply.kind}`);
}
