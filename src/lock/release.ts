import { Timer, type TimerWheel } from "../timer-wheel.ts";
import { type CallerCommand, publish, retireChannel } from "./diagnostics.ts";
import type { InFlight } from "./in-flight.ts";
import type { ReleaseOutcome, RetireMessage } from "./messages.ts";
import { toLockError } from "./no-answer.ts";
import type {
  LockCommand,
  LockStore,
  LockTimes,
  NoAnswer,
  OwnedReply,
  ReleaseRequest,
} from "./store.ts";
import type { WaitGroup } from "./wait-group.ts";

/** Called once, within `acquireTimeoutMs`: the outcome, and why it is unconfirmed. */
export type OnReleased = (outcome: ReleaseOutcome, cause: Error | undefined) => void;

/** What the releases of one lock share. */
export interface ReleaseRuntime {
  readonly store: LockStore;
  readonly times: LockTimes;
  readonly timers: TimerWheel;
  /** The releases that may still succeed. */
  readonly releases: WaitGroup;
}

/** How often a key is released again while a request of its acquire may still take effect. */
const retireEveryMs = 50;

/** How soon it is tried again after "permission denied". */
const permissionRetryMs = 1_000;

const ignored: OnReleased = () => {};

/**
 * Gives an owner id up for good, once: deletes the key if it holds the owner id. Besides
 * it only `complete` lets go of a lock, for the record that takes its place.
 *
 * @param inFlight the requests of its acquire that may still take effect.
 * @param validUntil the monotonic time before which only we can have deleted the key; 0 if unknown.
 * @param cooldownUntilMs until when, by the store's clock, the key keeps everybody out; 0 for none.
 */
export function release(
  runtime: ReleaseRuntime,
  command: CallerCommand,
  inFlight: InFlight,
  validUntil: number,
  onReleased: OnReleased = ignored,
  cooldownUntilMs = 0,
): void {
  runtime.releases.add();
  const releasing = new Releasing(runtime, command, inFlight, validUntil, onReleased);
  releasing.cooldownUntilMs = cooldownUntilMs;
  releasing.send(releasing.startedAt);
}

/** One compare-and-delete. */
class Request implements ReleaseRequest {
  readonly #releasing: Releasing;
  /** The latest deadline of the requests that were in flight when this one was sent. */
  readonly inFlightUntilMs: number;
  readonly cooldownUntilMs: number;
  deadlineMs: number | undefined;

  constructor(releasing: Releasing, inFlightUntilMs: number, cooldownUntilMs: number) {
    this.#releasing = releasing;
    this.inFlightUntilMs = inFlightUntilMs;
    this.cooldownUntilMs = cooldownUntilMs;
  }

  get command(): LockCommand {
    return this.#releasing.command;
  }

  answer(reply: OwnedReply): void {
    this.#releasing.answered(this, reply);
  }
}

/**
 * A release, which becomes a retire where requests of the acquire are in flight:
 *
 * ```
 * sent ── answered, store time after every deadline ──▶ final
 *   │ ─── answered, but a request may come later ─────▶ sent again after 50 ms (retiring)
 *   │ ─── unknown ─────────────────────────────────────▶ sent again: once at once, then as below
 *   │ ─── no answer for commandTimeoutMs ──────────────▶ sent again, now ambiguous
 *   │ ─── permission denied ───────────────────────────▶ sent again after 1 s
 *   └──── 2 × acquireTimeoutMs + ttlMs are over ───────▶ abandoned: the key runs out by itself
 * ```
 */
class Releasing extends Timer {
  readonly command: CallerCommand;
  readonly startedAt: number = performance.now();
  readonly #runtime: ReleaseRuntime;
  readonly #inFlight: InFlight;
  /** Whether any request was in flight at the beginning: then this is more than a plain release. */
  readonly #retires: boolean;
  readonly #validUntil: number;
  cooldownUntilMs = 0;
  #onReleased: OnReleased | undefined;
  #unanswered: Request | undefined;
  #sentAt = 0;
  /** Not 0 once the store has said "permission denied". */
  #notBefore = 0;
  /** Whether an earlier try may have deleted the key without our hearing of it. */
  #ambiguous = false;
  #lastFailure: NoAnswer | undefined;
  #ended = false;

  constructor(
    runtime: ReleaseRuntime,
    command: CallerCommand,
    inFlight: InFlight,
    validUntil: number,
    onReleased: OnReleased,
  ) {
    super();
    this.#runtime = runtime;
    this.command = command;
    this.#inFlight = inFlight;
    this.#retires = !inFlight.isEmpty;
    this.#validUntil = validUntil;
    this.#onReleased = onReleased;
  }

  send(now: number): void {
    // Read before the send: a request that is resolved afterwards was in flight during this try.
    const request = new Request(this, this.#inFlight.latestDeadlineMs, this.cooldownUntilMs);
    this.#unanswered = request;
    this.#sentAt = now;
    this.#setTimer(now);
    this.#runtime.store.release(request);
  }

  #setTimer(now: number): void {
    const dueAt = now + retireEveryMs;
    const reportAt = this.startedAt + this.#runtime.times.acquireTimeoutMs;
    const isReported = this.#onReleased === undefined;
    this.#runtime.timers.set(this, isReported ? dueAt : Math.min(dueAt, reportAt));
  }

  override onDue(): void {
    const now = performance.now();
    const ageMs = now - this.startedAt;
    const { acquireTimeoutMs, commandTimeoutMs, ttlMs } = this.#runtime.times;
    if (ageMs >= acquireTimeoutMs) this.#report("unconfirmed");
    if (ageMs >= 2 * acquireTimeoutMs + ttlMs) {
      this.#end("abandoned");
    } else if (this.#unanswered === undefined) {
      if (now >= this.#notBefore) this.send(now);
      else this.#setTimer(now);
    } else if (now - this.#sentAt >= commandTimeoutMs) {
      this.#ambiguous = true;
      this.send(now);
    } else {
      this.#setTimer(now);
    }
  }

  answered(request: Request, reply: OwnedReply): void {
    if (this.#unanswered === request) this.#unanswered = undefined;
    switch (reply.kind) {
      case "unsent":
        // Nothing happened; the timer is set for the next try.
        this.#lastFailure = reply;
        return;
      case "rejected":
        this.#lastFailure = reply;
        if (reply.misconfigured) this.#permissionDenied();
        return;
      case "unknown":
        this.#lastFailure = reply;
        this.#unknown();
        return;
    }
    this.#report(this.#outcomeOf(reply.kind));
    // Rule 19: a retire never sets a cooldown.
    this.cooldownUntilMs = 0;
    // Rule 6: a request that the store executes after its deadline takes no effect.
    if (reply.storeTimeMs > request.inFlightUntilMs) this.#end("final");
  }

  #unknown(): void {
    const isFirst = !this.#ambiguous;
    this.#ambiguous = true;
    // The first time at once: another connection may be ready.
    if (isFirst && !this.#ended) this.send(performance.now());
  }

  /** Waiting does not help, so it is asked rarely, and `close` does not wait for it. */
  #permissionDenied(): void {
    const isFirst = this.#notBefore === 0;
    this.#notBefore = performance.now() + permissionRetryMs;
    this.#report("unconfirmed");
    if (isFirst && !this.#ended) this.#runtime.releases.done();
  }

  #end(outcome: RetireMessage["outcome"]): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#runtime.timers.clear(this);
    this.#report("unconfirmed");
    if (this.#retires && retireChannel.hasSubscribers) {
      const durationMs = performance.now() - this.startedAt;
      const { key, keyPrefix } = this.command;
      const message = { key, keyPrefix, outcome, durationMs };
      publish(retireChannel, this.command, message);
    }
    if (this.#notBefore === 0) this.#runtime.releases.done();
  }

  #report(outcome: ReleaseOutcome): void {
    const onReleased = this.#onReleased;
    if (onReleased === undefined) return;
    this.#onReleased = undefined;
    const isUnconfirmed = outcome === "unconfirmed";
    const withinMs = this.#runtime.times.acquireTimeoutMs;
    onReleased(outcome, isUnconfirmed ? toLockError(this.#lastFailure, withinMs) : undefined);
  }

  /**
   * Rule 8: `gone` or `foreign` after a try whose answer was lost, while the lease would still be
   * valid: that try deleted the key, because nothing else could.
   */
  #outcomeOf(kind: "done" | "gone" | "freed" | "foreign"): ReleaseOutcome {
    if (kind === "done") return "released";
    // Rule 19: the tombstone names this owner id, so no earlier try has deleted the key.
    if (kind === "freed") return kind;
    return this.#ambiguous && performance.now() < this.#validUntil ? "released" : kind;
  }
}
