import { Timer, type TimerWheel } from "../timer-wheel.ts";
import { type CallerCommand, publish, type RetireMessage, retireChannel } from "./diagnostics.ts";
import type {
  AcquireReply,
  LockCommand,
  LockRequest,
  LockStore,
  LockTimes,
  NoAnswer,
  OwnedReply,
} from "./store.ts";
import { toLockError } from "./trouble.ts";

/**
 * What became of a release. `released`: the key was ours and is deleted. `gone`, `foreign`: the
 * lease had run out before, and the key is free or somebody else's; nothing was deleted.
 * `unconfirmed`: Redis has not answered within `acquireTimeoutMs`; the deletion goes on in the
 * background, and at worst the key runs out within its TTL.
 */
export type ReleaseOutcome = "released" | "gone" | "foreign" | "unconfirmed";

/** Told the outcome of the first answer, and why it is unconfirmed. */
export type Released = (outcome: ReleaseOutcome, cause: Error | undefined) => void;

/** How often a retire asks again while a copy may still take effect. */
const everyMs = 50;

/** How soon it asks again after a "you may not". */
const whenNotPermittedMs = 1_000;

/** What the retirements of one lock share. */
export interface RetirementKeeper {
  readonly store: LockStore;
  readonly times: LockTimes;
  readonly timers: TimerWheel;
  /** Called when one has ended, or is of no hope any more. */
  left(): void;
}

/** One compare-and-delete. */
class ReleaseRequest implements LockRequest<OwnedReply> {
  readonly retirement: Retirement;
  /** The latest deadline of those copies of the acquire that were open when this was sent. */
  readonly openUntil: number;
  deadlineMs: number | undefined;

  constructor(retirement: Retirement, openUntil: number) {
    this.retirement = retirement;
    this.openUntil = openUntil;
  }

  get command(): LockCommand {
    return this.retirement.command;
  }

  answer(reply: OwnedReply): void {
    this.retirement.answered(this, reply);
  }
}

/**
 * Gives an owner id up for good: compare-and-delete at once, and again every 50 ms until no copy of
 * the acquire can take effect any more. That is certain as soon as an answer carries a store time
 * later than every deadline that was open when the compare-and-delete was sent: a copy that the
 * store executes after that refuses itself.
 */
export class Retirement extends Timer {
  readonly command: CallerCommand;
  readonly startedAt: number = performance.now();
  readonly #keeper: RetirementKeeper;
  /** The copies of its acquire that may still take effect. Shrinks as clean answers come in. */
  readonly #inFlight: readonly LockRequest<AcquireReply>[];
  /** Whether any copy was open when this began: then it is more than a plain release. */
  readonly #wasOpen: boolean;
  /** Until when, by the monotonic clock, nobody but us can have taken the key away. */
  readonly #validUntil: number;
  #released: Released | undefined;
  #waiting: ReleaseRequest | undefined;
  #sentAt = 0;
  /** Not 0 once the store has said "you may not". */
  #notBefore = 0;
  /** Whether an earlier try may have deleted the key without our hearing of it. */
  #ambiguous = false;
  #lastFailure: NoAnswer | undefined;
  #ended = false;

  constructor(
    keeper: RetirementKeeper,
    command: CallerCommand,
    inFlight: readonly LockRequest<AcquireReply>[],
    validUntil: number,
    released: Released,
  ) {
    super();
    this.#keeper = keeper;
    this.command = command;
    this.#inFlight = inFlight;
    this.#wasOpen = inFlight.length > 0;
    this.#validUntil = validUntil;
    this.#released = released;
  }

  try(now: number): void {
    // Read before the send: a copy that is closed afterwards was open when this try was on its way.
    const copy = new ReleaseRequest(this, latestDeadline(this.#inFlight));
    this.#waiting = copy;
    this.#sentAt = now;
    this.#wakeSoon(now);
    this.#keeper.store.release(copy);
  }

  #wakeSoon(now: number): void {
    const dueAt = now + everyMs;
    const tellAt = this.startedAt + this.#keeper.times.acquireTimeoutMs;
    const untold = this.#released !== undefined;
    this.#keeper.timers.set(this, untold ? Math.min(dueAt, tellAt) : dueAt);
  }

  override onDue(): void {
    const now = performance.now();
    const age = now - this.startedAt;
    const { acquireTimeoutMs, commandTimeoutMs, ttlMs } = this.#keeper.times;
    if (age >= acquireTimeoutMs) this.#tell("unconfirmed");
    if (age >= 2 * acquireTimeoutMs + ttlMs) {
      this.#end("abandoned");
    } else if (this.#waiting === undefined) {
      if (now >= this.#notBefore) this.try(now);
      else this.#wakeSoon(now);
    } else if (now - this.#sentAt >= commandTimeoutMs) {
      this.#ambiguous = true;
      this.try(now);
    } else {
      this.#wakeSoon(now);
    }
  }

  answered(copy: ReleaseRequest, reply: OwnedReply): void {
    if (this.#waiting === copy) this.#waiting = undefined;
    switch (reply.kind) {
      case "unsent":
        // Nothing happened; it is tried again in a moment.
        this.#lastFailure = reply;
        return;
      case "rejected":
        this.#lastFailure = reply;
        if (reply.misconfigured) this.#notPermitted();
        return;
      case "unknown":
        this.#lastFailure = reply;
        this.#unknown();
        return;
    }
    this.#tell(this.#outcomeOf(reply.kind));
    if (reply.storeTimeMs > copy.openUntil) this.#end("final");
  }

  #unknown(): void {
    const isFirst = !this.#ambiguous;
    this.#ambiguous = true;
    // The first time at once: another connection may be ready.
    if (isFirst && !this.#ended) this.try(performance.now());
  }

  /** Asking again all the time for what is not permitted would be a load and no help. */
  #notPermitted(): void {
    const isNew = this.#notBefore === 0;
    this.#notBefore = performance.now() + whenNotPermittedMs;
    this.#tell("unconfirmed");
    if (isNew && !this.#ended) this.#keeper.left();
  }

  #end(outcome: "final" | "abandoned"): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#keeper.timers.clear(this);
    this.#tell("unconfirmed");
    if (this.#wasOpen && retireChannel.hasSubscribers) {
      const durationMs = performance.now() - this.startedAt;
      const message: RetireMessage = { key: this.command.key, outcome, durationMs };
      publish(retireChannel, this.command, message);
    }
    if (this.#notBefore === 0) this.#keeper.left();
  }

  #tell(outcome: ReleaseOutcome): void {
    const released = this.#released;
    if (released === undefined) return;
    this.#released = undefined;
    const isUnconfirmed = outcome === "unconfirmed";
    const withinMs = this.#keeper.times.acquireTimeoutMs;
    released(outcome, isUnconfirmed ? toLockError(this.#lastFailure, withinMs) : undefined);
  }

  /**
   * `gone` or `foreign` after a try whose answer was lost, while the lease would still be valid:
   * that try did the deleting, because nothing else could.
   */
  #outcomeOf(kind: "done" | "gone" | "foreign"): ReleaseOutcome {
    if (kind === "done") return "released";
    return this.#ambiguous && performance.now() < this.#validUntil ? "released" : kind;
  }
}

/** −∞ without open copies; ∞ while one is not written yet. */
function latestDeadline(copies: readonly LockRequest<AcquireReply>[]): number {
  let latest = Number.NEGATIVE_INFINITY;
  for (const copy of copies) latest = Math.max(latest, copy.deadlineMs ?? Number.POSITIVE_INFINITY);
  return latest;
}
