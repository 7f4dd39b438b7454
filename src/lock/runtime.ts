import { AsyncResource } from "node:async_hooks";
import { LockMisconfiguredError, LockUnavailableError } from "../errors.ts";
import { clearTimeout, performance, setTimeout } from "../time.ts";
import { inNeutralContext, TimerWheel, within } from "../timers.ts";
import { isError, isOwn, textOfThrown } from "../validation.ts";
import type { OnEnd } from "./acquire.ts";
import { type ChannelOf, lockChannels, storeChannel } from "./channels.ts";
import type { Completing } from "./complete.ts";
import type { HeldLease } from "./held-lease.ts";
import type { Watch } from "./repeats.ts";
import type { Seal } from "./seal.ts";
import type {
  AcquireRequest,
  LockCommand,
  LockRequest,
  LockStore,
  LockTimes,
  NoAnswer,
} from "./store.ts";
import type { SubmissionIdentity } from "./submission.ts";

/** A command, with the members that stay in this process. */
export interface CallerCommand extends LockCommand {
  readonly keyPrefix: string;
  /** The submission, as the shop's database and logs have it. */
  readonly identity: SubmissionIdentity | undefined;
  /** How long, in milliseconds, the submission's answer is kept; 0 without a submission. */
  readonly retainMs: number;
  /** The asynchronous context of the code that asked for the lock, if a channel has subscribers. */
  readonly callerContext: AsyncResource | undefined;
  /** A throwaway lock of `check()`: no message is published about it. */
  readonly isCheck: boolean;
  readonly inFlight: InFlight;
}

/**
 * Captures the caller's asynchronous context if a channel has subscribers. Replies and timers run
 * in another context, in which subscribers could not read the `AsyncLocalStorage` of the caller.
 */
export function captureContext(): AsyncResource | undefined {
  for (const each of lockChannels) if (each.hasSubscribers) return new AsyncResource("submit-lock");
  return undefined;
}

/** Publishes about the command's key, in the context of the code that asked for the lock. */
export function publish<Message extends { readonly key: string; readonly keyPrefix: string }>(
  to: ChannelOf<Message>,
  { callerContext, isCheck, key, keyPrefix }: CallerCommand,
  more: Omit<Message, "key" | "keyPrefix">,
): void {
  if (isCheck) return;
  const message = { key, keyPrefix, ...more };
  if (callerContext === undefined) to.publish(message);
  else callerContext.runInAsyncScope(() => to.publish(message));
}

class WaitGroup {
  count = 0;
  #waiting: (() => void)[] = [];

  done(): void {
    if (--this.count > 0) return;
    for (const resolve of this.#waiting.splice(0)) resolve();
  }

  async wait(): Promise<void> {
    if (this.count > 0) await new Promise<void>((resolve) => this.#waiting.push(resolve));
  }
}

export class LockRuntime {
  readonly store: LockStore;
  readonly times: LockTimes;
  readonly seal: Seal | undefined;
  /** How long a retire is sent, a caller of `complete` waits, and the lease is extended. */
  readonly patienceMs: number;
  /** The timers of attempts and releases. */
  readonly timers: TimerWheel;
  /** The timers of completes, which `close` may give up. */
  readonly completeTimers: TimerWheel<Completing>;
  /** The timers of leases that are held, wait for a complete, or are lost under work. */
  readonly watchdogs: TimerWheel<HeldLease>;
  /** Attempts under way, and leases not lost, with neither `release` nor `complete` called. */
  readonly active: WaitGroup = new WaitGroup();
  /** Releases and retires under way, except those that were rejected as misconfigured. */
  readonly releases: WaitGroup = new WaitGroup();
  readonly completes: WaitGroup = new WaitGroup();
  /** Requests under way that write traces of orders that have outlived their locks. */
  readonly traces: WaitGroup = new WaitGroup();
  /** The callers that wait for a lease, by key: only the first of them goes on asking Redis. */
  readonly lines: Map<string, Set<object>> = new Map();
  /** Callers that wait for the end of a submission. */
  readonly waiting: WaitGroup = new WaitGroup();
  /** The look-ups for callers that wait for a submission, by key, submission and content. */
  readonly watches: Map<string, Watch> = new Map();
  /** Attempts of `acquireOrWait`, by key, submission and content: repeats share those under way. */
  readonly attempts: Map<string, Promise<Parameters<OnEnd>>> = new Map();
  /** Completes under way, by the submission's id; of two runs of a submission, the later one's. */
  readonly completing: Map<string, Completing> = new Map();
  pendingRecordLength = 0;
  /** `close` has waited long enough: a lease that is acquired now is released at once. */
  isDrained = false;
  /** An outage of the store, with times of the monotonic clock; `backAt` once it seems to be over. */
  outage: { since: number; keyPrefix: string; backAt?: number | undefined } | undefined;
  #back: NodeJS.Timeout | undefined;

  constructor(store: LockStore, times: LockTimes, seal?: Seal) {
    this.store = store;
    this.times = times;
    this.seal = seal;
    this.patienceMs = 2 * times.acquireTimeoutMs + times.ttlMs;
    // Coarse steps spare a busy process a wake-up per attempt; a timer a few ms late is harmless.
    const stepMs = Math.max(1, times.commandTimeoutMs / 100);
    this.timers = new TimerWheel(stepMs, true);
    this.completeTimers = new TimerWheel(stepMs, true);
    // A holder is notified min(1 s, ttlMs / 10) before its lease ends: one step is a twentieth of
    // that. These timers keep no process alive: the work under a lease does.
    this.watchdogs = new TimerWheel(Math.max(1, Math.min(times.ttlMs / 200, 50)), false);
  }

  /**
   * Rule 14: live leases and their repeats get `timeoutMs`. Then releases and retires get
   * `2 × acquireTimeoutMs`; completes as well, or what is left of `timeoutMs`, if that is longer.
   */
  async drain(timeoutMs: number): Promise<void> {
    const endsAt = performance.now() + timeoutMs;
    const drained = this.active.wait();
    // A caller that waits for a run sees the end of the run only in its next look.
    const ended = drained.then(() => this.waiting.wait());
    await within(timeoutMs, ended);
    this.isDrained = true;
    for (const lease of this.watchdogs.armed()) lease.lose("closed");
    // Attempts that are still under way may have owner ids to retire.
    const recorded = drained.then(() => this.completes.wait());
    const retired = recorded.then(() => this.releases.wait());
    // Wait for the traces, too: the application closes its connections next.
    const settled = retired.then(() => this.traces.wait());
    const leastMs = 2 * this.times.acquireTimeoutMs;
    // Completes get more time: without a record an order may run again, while a lock only runs out.
    const restMs = Math.max(leastMs, endsAt - performance.now());
    await Promise.all([within(restMs, recorded), within(leastMs, settled)]);
    for (const complete of this.completeTimers.armed()) complete.drop();
    // A `complete` or `release` that is called later is still sent, but keeps no process alive.
    this.completeTimers.unref();
    this.timers.unref();
    // A closed lock asks nothing more, so it would never see the end.
    this.#endOutage();
  }

  /** Called when a connection of the store came up. */
  connected(): void {
    this.storeAnswers({ isCheck: false });
    // Send completes before any attempt: where Redis has lost the lock, a repeat would run.
    for (const complete of this.completeTimers.armed()) complete.sendAgain(performance.now());
    for (const lease of this.watchdogs.armed()) lease.extendNow();
  }

  /** Returns the complete of an earlier run of the submission whose record is not known to be there. */
  completingOf({ key, submission }: LockCommand): Completing | undefined {
    const complete = submission && this.completing.get(submission.id);
    // The throwaway locks of `check` share an id.
    return complete?.command.key === key ? complete : undefined;
  }

  storeIsAway({ isCheck, keyPrefix }: CallerCommand, since: number, cause: Error): void {
    if (isCheck) return;
    clearTimeout(this.#back);
    this.#back = undefined;
    if (this.outage !== undefined) {
      this.outage.backAt = undefined;
      return;
    }
    this.outage = { since, keyPrefix };
    const durationMs = performance.now() - since;
    storeChannel.publish({ outcome: "away", durationMs, keyPrefix, cause });
  }

  /**
   * Called for an answer, or a new connection, during an outage. Either may be of one node, so the
   * outage ends only if no attempt and no extend fails in the next 2 × `acquireTimeoutMs`, which is
   * twice the time of an attempt.
   */
  storeAnswers({ isCheck }: Pick<CallerCommand, "isCheck">): void {
    if (isCheck || this.outage === undefined || this.#back !== undefined) return;
    this.outage.backAt = performance.now();
    const ended = () => this.#endOutage();
    this.#back = inNeutralContext(setTimeout, ended, 2 * this.times.acquireTimeoutMs).unref();
  }

  #endOutage(): void {
    clearTimeout(this.#back);
    this.#back = undefined;
    if (this.outage === undefined) return;
    const { since, keyPrefix, backAt = performance.now() } = this.outage;
    this.outage = undefined;
    const durationMs = backAt - since;
    storeChannel.publish({ outcome: "back", durationMs, keyPrefix, cause: undefined });
  }
}

/**
 * The requests of one attempt that are in flight: written, and possibly still to take effect. The
 * attempt adds and resolves them, also after it has ended; its lease and its release read them.
 */
export class InFlight {
  /** Almost always the only request, which needs no list. */
  #first: AcquireRequest | undefined;
  #others: AcquireRequest[] = [];
  isEmpty = true;

  add(request: AcquireRequest): void {
    this.isEmpty = false;
    if (this.#first === undefined) this.#first = request;
    else this.#others = [...this.#others, request];
  }

  resolve(request: AcquireRequest): void {
    if (this.#first === request) this.#first = this.#others.pop();
    else this.#others = this.#others.filter((other) => other !== request);
    this.isEmpty = this.#first === undefined;
  }

  /** −∞ without a request, ∞ while one is not written yet. */
  get latestDeadlineMs(): number {
    if (this.#first === undefined) return Number.NEGATIVE_INFINITY;
    // Every release reads this, so it makes no list.
    let latest = this.#first.deadlineMs ?? Number.POSITIVE_INFINITY;
    for (const { deadlineMs = Number.POSITIVE_INFINITY } of this.#others) {
      latest = Math.max(latest, deadlineMs);
    }
    return latest;
  }
}

/** Hands a request to the store. A throw is the answer `unknown`; a rejected promise is not. */
export function write<
  Name extends
    | ("acquire" | "extend" | "release" | "complete" | "outlive")
    | ("inspect" | "free" | "forget"),
>(store: LockStore, method: Name, request: Parameters<NonNullable<LockStore[Name]>>[0]): void {
  try {
    (store as unknown as Record<Name, (request: LockRequest<never>) => void>)[method](request);
  } catch (error) {
    const cause = isError(error) ? error : new Error(textOfThrown(error));
    (request as LockRequest<NoAnswer>).answer({ kind: "unknown", cause });
  }
}

export function isNoAnswer(reply: { readonly kind: string }): reply is NoAnswer {
  return reply.kind === "unsent" || reply.kind === "rejected" || reply.kind === "unknown";
}

/** A timer that fires so many ms late shows that the process is busy, which the error then says. */
const busyMs = 100;

/** Error handlers show messages to clients, so no message has a text of the server or system. */
function saidOf(cause: Error): string {
  return isOwn(cause) ? cause.message : "see cause";
}

/** The error for a missing or failed reply. @param lateMs how late after `withinMs` it is made. */
export function toLockError(
  lastFailure: NoAnswer | undefined,
  withinMs: number,
  lateMs = 0,
): LockUnavailableError | LockMisconfiguredError {
  if (lastFailure === undefined) {
    const late = Math.round(lateMs);
    const why =
      late < busyMs
        ? ""
        : `: this process was busy or slept, or its clock was set: it looked ${late} ms later`;
    return new LockUnavailableError(`the store did not answer within ${withinMs} ms${why}`);
  }
  const { cause, kind } = lastFailure;
  if (kind === "unsent") {
    const { reason } = lastFailure;
    const message = `no answer within ${withinMs} ms, and the last request was not executed: ${reason}`;
    return new LockUnavailableError(message, cause && { cause });
  }
  if (kind === "rejected" && lastFailure.misconfigured) {
    const { advice = "the store does not permit what a lock needs" } = lastFailure;
    return new LockMisconfiguredError(`${advice}: ${saidOf(cause)}`, { cause });
  }
  return new LockUnavailableError(`no reply of the store, or an error: ${saidOf(cause)}`, {
    cause,
  });
}
