import { LockClosedError, LockUnavailableError } from "../errors.ts";
import { performance } from "../time.ts";
import { pauseBeforeRetry, within } from "../timers.ts";
import { checkMs, longestRepeatWaitMs } from "../validation.ts";
import { Acquiring, type OnEnd } from "./acquire.ts";
import { acquireChannel } from "./channels.ts";
import type { HeldLease } from "./held-lease.ts";
import { closedAttempt, type SubmissionAttempt } from "./lease.ts";
import { completedOf, type StoredAnswer } from "./record.ts";
import { type CallerCommand, type LockRuntime, publish, write } from "./runtime.ts";
import type { AcquireReply, LockCommand, LockTimes } from "./store.ts";

/** The state of a submission. */
export type LookUp =
  /** The submission is not being processed, and no answer is kept. */
  | { readonly outcome: "none" }
  /** The submission is being processed. */
  | { readonly outcome: "in-flight" }
  /** Completed by an HTTP answer, or by `once`: its value, if kept, is `answer.returned.value`. */
  | {
      readonly outcome: "completed";
      readonly answer: StoredAnswer;
      /** How long ago the submission was completed, by the store's clock, in milliseconds. */
      readonly ageMs: number;
      /**
       * When the submission was completed, by the store's clock: Unix time in milliseconds. If the
       * answer is `unreadable`, this is the time of the look, and `ageMs` is 0.
       */
      readonly completedAt: number;
      /** The submission's 22 characters, as `submission.id` has them. */
      readonly id: string;
    }
  | { readonly outcome: "mismatched"; readonly inFlight: boolean }
  /** The store gave no usable answer. */
  | { readonly outcome: "unknown" };

/** The state of a submission, as a caller that waits for it sees it. */
type Seen =
  | Exclude<LookUp, { readonly outcome: "in-flight" }>
  | { readonly outcome: "in-flight"; readonly holderId?: string | undefined }
  /** The run for which the caller waits has ended, and left this answer to the caller (rule 25). */
  | { readonly outcome: "told"; readonly answer: StoredAnswer; readonly ageMs: number };

/** Looks up a submission, and takes no lock. @param waitsFor the run whose answer is wanted. */
async function look(runtime: LockRuntime, command: LockCommand, waitsFor?: string): Promise<Seen> {
  const { seal, store } = runtime;
  // Its answer is still to be recorded, also where its lock has run out.
  const isCompleting = runtime.completingOf(command) !== undefined;
  const absent: Seen = { outcome: isCompleting ? "in-flight" : "none" };
  const reply = await new Promise<AcquireReply>((answer) =>
    write(store, "acquire", { command, deadlineMs: undefined, onlyLooks: true, waitsFor, answer }),
  );
  switch (reply.kind) {
    case "completed":
      return { outcome: "completed", ...completedOf(reply, command, seal) };
    case "told": {
      const { answer, ageMs } = completedOf(reply, command, seal);
      return { outcome: "told", answer, ageMs };
    }
    case "mismatched":
      return { outcome: "mismatched", inFlight: reply.inFlight };
    case "contended": {
      const { holderId, sameSubmission } = reply;
      return sameSubmission === true ? { outcome: "in-flight", holderId } : absent;
    }
    case "outOfWindow":
      return absent;
    default:
      return { outcome: "unknown" };
  }
}

/** @param commands the places where the record may be: the first that is not `none` counts. */
export async function lookUp(
  runtime: LockRuntime,
  commands: readonly LockCommand[],
): Promise<LookUp> {
  let seen: Seen = { outcome: "none" };
  for (const command of commands) {
    if (seen.outcome !== "none") break;
    seen = await lookInTime(runtime, command);
  }
  return seen.outcome === "in-flight" ? { outcome: "in-flight" } : (seen as LookUp);
}

/** Looks again until `commandTimeoutMs` is over: a client that still connects sends nothing. */
async function lookInTime(runtime: LockRuntime, command: LockCommand): Promise<Seen> {
  const endsAt = performance.now() + command.times.commandTimeoutMs;
  for (let round = 0; ; round++) {
    const leftMs = endsAt - performance.now();
    // Timers count whole milliseconds: a look with less than 1 ms left would end after its bound.
    if (leftMs < 1) return silent;
    const seen = await within(leftMs, look(runtime, command));
    if (seen !== undefined && seen.outcome !== "unknown") return seen;
    await pauseBeforeRetry(round, endsAt);
  }
}

/** The most callers that may wait: for one submission, so that others have room, and in all. */
export const mostWaiting = { forOne: 64, inAll: 1_000 } as const;

interface Waiter {
  /** The owner id of the run for which the caller waits; `undefined` if the store does not say. */
  run: string | undefined;
  readonly since: number;
  readonly endsAt: number;
  readonly isAbandoned: () => boolean;
  readonly settle: (seen: Seen) => void;
  readonly fail: (error: unknown) => void;
}

/** Looks up one submission for all callers of this lock that wait for it. */
export class Watch {
  readonly waiters: Set<Waiter> = new Set();
  /** The first caller's contended attempt: callers beyond `mostWaiting.forOne` get it at once. */
  readonly attempt: SubmissionAttempt;
  readonly #look: (waitsFor: string | undefined) => Promise<Seen>;
  readonly #times: LockTimes;
  #silentSince: number | undefined;

  constructor(
    attempt: SubmissionAttempt,
    look: (waitsFor: string | undefined) => Promise<Seen>,
    times: LockTimes,
  ) {
    this.attempt = attempt;
    this.#look = look;
    this.#times = times;
  }

  /** @param over called when no caller waits any more: a later one needs another watch. */
  async run(over: () => void): Promise<void> {
    for (let round = 0; this.waiters.size > 0; round++) {
      const ends = [...this.waiters].map(({ endsAt }) => endsAt);
      await pauseBeforeRetry(round, Math.min(...ends));
      this.#settle(undecided, ({ isAbandoned }) => isAbandoned());
      const [longest] = this.waiters;
      if (longest === undefined) break;
      const { run } = longest;
      const lookedAt = performance.now();
      const failed = (error: unknown) => {
        // A look throws once `close` has waited long enough.
        for (const { fail } of this.waiters) fail(error);
        this.waiters.clear();
      };
      // A late answer still counts: with a slow Redis, every look is as late. A late failure is
      // ignored: the time-out has said the same before.
      let isLate = false;
      const saw = (seen: Seen) => {
        if (!isLate || seen.outcome !== "unknown") this.#saw(seen, run, lookedAt);
      };
      const answered = this.#look(run)
        .then(saw)
        .catch(failed)
        .then(() => true);
      if (await within(this.#times.commandTimeoutMs, answered)) continue;
      saw(silent);
      isLate = true;
    }
    over();
  }

  /** @param run the owner id of the run for which the look has asked. */
  #saw(seen: Seen, run: string | undefined, lookedAt: number): void {
    if (seen.outcome === "in-flight") {
      // If the holder is another run, the waiter's run has told nothing: wait for the holder's run.
      for (const waiter of this.waiters) if (waiter.run === run) waiter.run = seen.holderId ?? run;
    } else if (seen.outcome !== "unknown") {
      // Skip callers that came after the look began. `told` and `none` are about one run alone.
      const isTold = seen.outcome === "told" || seen.outcome === "none";
      this.#settle(seen, (each) => each.since <= lookedAt && (!isTold || each.run === run));
    }
    if (seen.outcome === "unknown") this.#silentSince ??= lookedAt;
    else this.#silentSince = undefined;
    const left = this.#silentSince === undefined ? undecided : silent;
    this.#settle(left, ({ endsAt }) => endsAt <= lookedAt);
    // One lost reply is not an outage: callers wait for a silent store as long as an acquire does.
    const isSilent =
      performance.now() - (this.#silentSince ?? Infinity) >= this.#times.acquireTimeoutMs;
    if (isSilent) this.#settle(silent, ({ since }) => since <= (this.#silentSince ?? 0));
  }

  #settle(seen: Seen, isMeant: (waiter: Waiter) => boolean): void {
    for (const waiter of this.waiters) {
      try {
        if (!isMeant(waiter)) continue;
        waiter.settle(seen);
      } catch (error) {
        // If a caller's `isAbandoned` throws, fail that caller: otherwise the others wait forever.
        waiter.fail(error);
      }
      this.waiters.delete(waiter);
    }
  }
}

const undecided: Seen = { outcome: "in-flight" };
const silent: Seen = { outcome: "unknown" };

/** Begins an attempt. Repeats that arrive before its end share it. */
function attempting(
  runtime: LockRuntime,
  command: CallerCommand,
  crowdName: string,
): Promise<Parameters<OnEnd>> {
  const { attempts } = runtime;
  let resolve!: (end: Parameters<OnEnd>) => void;
  const attempt = new Promise<Parameters<OnEnd>>((settle) => {
    resolve = settle;
  });
  // Set this before the attempt begins, because a store may answer at once.
  attempts.set(crowdName, attempt);
  const ended: OnEnd = (...end) => {
    attempts.delete(crowdName);
    resolve(end);
  };
  new Acquiring(runtime, command, ended).begin();
  return attempt;
}

/** Publishes a contended click that shared another click's attempt, so that metrics count both. */
function publishShared(
  command: CallerCommand,
  attempt: SubmissionAttempt,
  durationMs: number,
): void {
  if (attempt.outcome !== "contended" || !acquireChannel.hasSubscribers) return;
  const { outcome, expiresInMs } = attempt;
  const none = { copies: 0, confirmed: false, fencingToken: undefined, cause: undefined };
  publish(acquireChannel, command, { outcome, durationMs, expiresInMs, ...none });
}

/** Whether this process knows of a run of the submission that may not be over. */
function mayRun(runtime: LockRuntime, asked: CallerCommand, crowdName: string): boolean {
  const isRun = ({ command: { key, submission } }: HeldLease) =>
    key === asked.key && submission?.id === asked.submission?.id;
  return (
    runtime.watches.has(crowdName) ||
    runtime.completingOf(asked) !== undefined ||
    runtime.watchdogs.armed().some(isRun)
  );
}

/** How an attempt for a submission ended, or how the submission's run in flight ended. */
export type RepeatAttempt =
  | (SubmissionAttempt & {
      /** The first run may not have ended: this repeat must not run, even in an outage. */
      readonly isRepeat?: true;
      /** This submission was in flight, and has ended without an answer that can be shown. */
      readonly hasEnded?: true;
    })
  /** This submission was in flight, and has ended with this answer, which is not kept. */
  | { readonly outcome: "told"; readonly answer: StoredAnswer; readonly ageMs: number };

/**
 * Acquires for a submission. If the same one is in flight, waits for its end, and never takes the
 * lock: a repeat must not run.
 * @param commandOf makes a command with an owner id of its own.
 * @returns `contended` at the end of `waitMs`, once abandoned, or at once where too many wait;
 * `unavailable` if the store answers no look for `acquireTimeoutMs`, or does not answer the last.
 */
export async function acquireOrWait(
  runtime: LockRuntime,
  commandOf: () => CallerCommand,
  waitMs: number,
  isAbandoned: () => boolean = () => false,
): Promise<RepeatAttempt> {
  checkMs("waitMs", waitMs, 0, longestRepeatWaitMs);
  const command = commandOf();
  const { id, fingerprint } = command.submission ?? {};
  const crowdName = `${command.key} ${id} ${fingerprint}`;
  const { attempts, waiting, watches } = runtime;
  const { forOne, inAll } = mostWaiting;
  const crowd = watches.get(crowdName);
  // Too many wait already. Answer without a look-up, so that one user's crowd costs the others
  // little.
  if (crowd !== undefined && crowd.waiters.size >= forOne) return crowd.attempt;
  const shared = attempts.get(crowdName);
  const from = performance.now();
  let [attempt, run, isRepeat] = await (shared ?? attempting(runtime, command, crowdName));
  if (attempt.outcome === "unavailable" && (isRepeat || mayRun(runtime, command, crowdName))) {
    return { ...attempt, isRepeat: true };
  }
  if (attempt.outcome === "acquired" && shared !== undefined) {
    // The attempt's first caller runs the submission: wait for its run.
    const { lease } = attempt;
    run = lease.ownerId;
    attempt = { outcome: "contended", expiresInMs: lease.remainingMs(), sameSubmission: true };
  }
  if (shared !== undefined) publishShared(command, attempt, performance.now() - from);
  if (attempt.outcome !== "contended" || attempt.sameSubmission !== true) return attempt;
  const lookAgain = async (waitsFor: string | undefined) => {
    if (runtime.isDrained) throw closedAttempt().cause;
    return await look(runtime, commandOf(), waitsFor);
  };
  const known = watches.get(crowdName);
  const watch = known ?? new Watch(attempt, lookAgain, runtime.times);
  if (waitMs === 0 || watch.waiters.size >= forOne || waiting.count >= inAll) return attempt;
  const since = performance.now();
  waiting.count++;
  try {
    const seen = await new Promise<Seen>((settle, fail) => {
      watch.waiters.add({ run, since, endsAt: since + waitMs, isAbandoned, settle, fail });
      if (known !== undefined) return;
      watches.set(crowdName, watch);
      void watch.run(() => watches.delete(crowdName));
    });
    if (seen.outcome === "in-flight") return attempt;
    if (seen.outcome === "none") return { ...attempt, expiresInMs: 0, hasEnded: true };
    if (seen.outcome !== "unknown") return seen;
    const why =
      "the store did not say whether the same submission has ended. Ask again in a moment";
    return { outcome: "unavailable", cause: new LockUnavailableError(why), isRepeat: true };
  } catch (error) {
    if (!(error instanceof LockClosedError)) throw error;
    // The lock was closed while the caller waited.
    return { outcome: "unavailable", cause: error, isRepeat: true };
  } finally {
    waiting.done();
  }
}
