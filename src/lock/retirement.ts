import { type RetireMessage, retireChannel } from "./diagnostics.ts";
import type {
  AcquireReply,
  Copy,
  LockCommand,
  LockStore,
  LockTimes,
  NoAnswer,
  OwnedReply,
} from "./store.ts";
import { errorFor } from "./trouble.ts";

/**
 * What became of a release. `released`: the key was ours and is deleted. `gone`, `foreign`: the
 * lease had run out before, and the key is free or somebody else's; nothing was deleted.
 * `unconfirmed`: Redis has not answered within `acquireTimeoutMs`; the deletion goes on in the
 * background, and at worst the key runs out within its TTL.
 */
export type ReleaseOutcome = "released" | "gone" | "foreign" | "unconfirmed";

/** The outcome, and why it is unconfirmed. */
export interface ReleaseEnd {
  readonly outcome: ReleaseOutcome;
  readonly cause: Error | undefined;
}

/** How often a retire asks again while a copy may still take effect. */
const everyMs = 50;

/** How soon it asks again after a "you may not". */
const whenNotPermittedMs = 1_000;

/** An owner id that is being given up. */
class Retirement {
  readonly command: LockCommand;
  /** The copies of its acquire that may still take effect. Shrinks as clean answers come in. */
  readonly openCopies: readonly Copy<AcquireReply>[];
  /** Until when, by the monotonic clock, nobody but us can have taken the key away. */
  readonly validUntil: number;
  readonly startedAt: number = performance.now();
  /** Whether any copy was open when this began: then it is more than a plain release. */
  readonly wasOpen: boolean;
  readonly settle: (end: ReleaseEnd) => void;
  sentAt = 0;
  /** Not 0 once the store has said "you may not". */
  notBefore = 0;
  waiting: Copy<OwnedReply> | undefined;
  /** Whether an earlier try may have deleted the key without our hearing of it. */
  ambiguous = false;
  trouble: NoAnswer | undefined;
  settled = false;

  constructor(
    command: LockCommand,
    openCopies: readonly Copy<AcquireReply>[],
    validUntil: number,
    settle: (end: ReleaseEnd) => void,
  ) {
    this.command = command;
    this.openCopies = openCopies;
    this.wasOpen = openCopies.length > 0;
    this.validUntil = validUntil;
    this.settle = settle;
  }
}

/**
 * Gives owner ids up for good: compare-and-delete at once, and again every 50 ms until no copy of
 * the acquire can take effect any more. That is certain as soon as an answer carries a store time
 * later than every deadline that was open when the compare-and-delete was sent: a copy that the
 * store executes after that refuses itself.
 *
 * One loop for all owner ids of a lock.
 */
export class Retirements {
  readonly #store: LockStore;
  readonly #times: LockTimes;
  readonly #underWay = new Set<Retirement>();
  #timer: NodeJS.Timeout | undefined;
  #unreferenced = false;
  #idle: (() => void) | undefined;

  constructor(store: LockStore, times: LockTimes) {
    this.#store = store;
    this.#times = times;
  }

  /**
   * The outcome is that of the first answer; never rejects, and settles within `acquireTimeoutMs`.
   *
   * @param validUntil until when, by the monotonic clock, the key is ours for certain.
   */
  begin(
    command: LockCommand,
    openCopies: readonly Copy<AcquireReply>[],
    validUntil: number,
  ): Promise<ReleaseEnd> {
    return new Promise((settle) => {
      const retirement = new Retirement(command, openCopies, validUntil, settle);
      this.#underWay.add(retirement);
      this.#try(retirement);
      this.#startTimer();
    });
  }

  /** Resolves when nothing is under way that could still succeed. */
  idle(): Promise<void> {
    return new Promise((resolve) => {
      this.#idle = resolve;
      this.#checkIdle();
    });
  }

  #checkIdle(): void {
    // Only `close` asks, and this is on the way of every release.
    if (this.#idle === undefined) return;
    for (const { notBefore } of this.#underWay) if (notBefore === 0) return;
    this.#idle();
  }

  /** What is still under way goes on, but a closed lock keeps no process alive. */
  unref(): void {
    this.#unreferenced = true;
    this.#timer?.unref();
  }

  #startTimer(): void {
    if (this.#timer !== undefined) return;
    // After a blocked event loop the answers lie behind the timers: they get one turn first.
    this.#timer = setInterval(() => setImmediate(() => this.#tick()), everyMs);
    if (this.#unreferenced) this.#timer.unref();
  }

  #tick(): void {
    // Stopped here and not when the last one ends, so that busy traffic does not restart it all the time.
    if (this.#underWay.size === 0) {
      clearInterval(this.#timer);
      this.#timer = undefined;
      return;
    }
    const now = performance.now();
    for (const retirement of this.#underWay) {
      const age = now - retirement.startedAt;
      if (age > this.#times.acquireTimeoutMs) this.#settle(retirement, "unconfirmed");
      if (age > 2 * this.#times.acquireTimeoutMs + this.#times.ttlMs) {
        this.#end(retirement, "abandoned");
      } else if (retirement.waiting === undefined) {
        if (now >= retirement.notBefore) this.#try(retirement);
      } else if (now - retirement.sentAt >= this.#times.commandTimeoutMs) {
        retirement.ambiguous = true;
        this.#try(retirement);
      }
    }
  }

  #try(retirement: Retirement): void {
    // Read before the send: a copy that is closed afterwards was open when this try was on its way.
    const openUntil = latestDeadline(retirement.openCopies);
    const copy = this.#store.release(retirement.command);
    retirement.waiting = copy;
    retirement.sentAt = performance.now();
    void copy.reply.then((reply) => this.#answered(retirement, copy, reply, openUntil));
  }

  #answered(
    retirement: Retirement,
    copy: Copy<OwnedReply>,
    reply: OwnedReply,
    openUntil: number,
  ): void {
    if (retirement.waiting === copy) retirement.waiting = undefined;
    switch (reply.kind) {
      case "unsent":
        // Nothing happened; the next tick tries again.
        retirement.trouble = reply;
        return;
      case "rejected":
        retirement.trouble = reply;
        if (!reply.misconfigured) return;
        // Asking again all the time for what is not permitted would be a load and no help.
        retirement.notBefore = performance.now() + whenNotPermittedMs;
        this.#settle(retirement, "unconfirmed");
        this.#checkIdle();
        return;
      case "unknown":
        retirement.trouble = reply;
        // The first time at once: another connection may be ready.
        if (!retirement.ambiguous) this.#try(retirement);
        retirement.ambiguous = true;
        return;
    }
    this.#settle(retirement, outcomeOf(retirement, reply.kind, reply.clean));
    if (reply.storeTimeMs > openUntil) this.#end(retirement, "final");
  }

  #end(retirement: Retirement, outcome: "final" | "abandoned"): void {
    if (!this.#underWay.delete(retirement)) return;
    this.#settle(retirement, "unconfirmed");
    if (retirement.wasOpen && retireChannel.hasSubscribers) {
      const durationMs = performance.now() - retirement.startedAt;
      const message: RetireMessage = { key: retirement.command.key, outcome, durationMs };
      retireChannel.publish(message);
    }
    this.#checkIdle();
  }

  #settle(retirement: Retirement, outcome: ReleaseOutcome): void {
    if (retirement.settled) return;
    retirement.settled = true;
    const cause =
      outcome === "unconfirmed"
        ? errorFor(retirement.trouble, this.#times.acquireTimeoutMs)
        : undefined;
    retirement.settle({ outcome, cause });
  }
}

/**
 * `gone` or `foreign` after a try whose answer was lost, while the lease would still be valid: that
 * try did the deleting, because nothing else could.
 */
function outcomeOf(
  retirement: Retirement,
  kind: "done" | "gone" | "foreign",
  clean: boolean,
): ReleaseOutcome {
  if (kind === "done") return "released";
  const ourOwnDoing = retirement.ambiguous || !clean;
  return ourOwnDoing && performance.now() < retirement.validUntil ? "released" : kind;
}

/** −∞ without open copies; ∞ while one is not written yet. */
function latestDeadline(copies: readonly Copy<AcquireReply>[]): number {
  let latest = Number.NEGATIVE_INFINITY;
  for (const copy of copies) latest = Math.max(latest, copy.deadlineMs ?? Number.POSITIVE_INFINITY);
  return latest;
}
