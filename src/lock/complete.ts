import { LockClosedError } from "../errors.ts";
import { Timer, type TimerWheel } from "../timer-wheel.ts";
import type { CompletePlan } from "./complete-plan.ts";
import { type CallerCommand, completeChannel, duplicateChannel, publish } from "./diagnostics.ts";
import type { InFlight } from "./in-flight.ts";
import type { CompleteOutcome } from "./messages.ts";
import { toLockError } from "./no-answer.ts";
import { type ReleaseRuntime, release } from "./release.ts";
import type { CompleteReply, CompleteRequest, LockCommand, NoAnswer } from "./store.ts";
import type { WaitGroup } from "./wait-group.ts";

/** What the completes of one lock share. */
export interface CompleteRuntime extends ReleaseRuntime {
  readonly completions: TimerWheel<Completing>;
  /** Those that may still be answered. */
  readonly completes: WaitGroup;
  /** How many characters of records wait for an answer. */
  pendingRecordLength: number;
}

/** Called once, within 2 × `acquireTimeoutMs` + `ttlMs`. */
export type OnCompleted = (outcome: CompleteOutcome, cause: Error | undefined) => void;

/** How soon it is sent again after an error. */
const retryEveryMs = 50;

/** How soon it is sent again after "permission denied". */
const permissionRetryMs = 1_000;

/**
 * Rule 17: writes the record and lets go of the lock, sent until it is answered. Only then is
 * retired what is in flight: a compare-and-delete beside it could leave neither lock nor record.
 */
export function complete(
  runtime: CompleteRuntime,
  command: CallerCommand,
  inFlight: InFlight,
  plan: CompletePlan,
  onCompleted: OnCompleted,
): Completing {
  const completing = new Completing(runtime, command, inFlight, plan, onCompleted);
  runtime.completes.add();
  runtime.pendingRecordLength += plan.record.length;
  completing.send(completing.startedAt);
  return completing;
}

class Request implements CompleteRequest {
  readonly #completing: Completing;
  deadlineMs: number | undefined;

  constructor(completing: Completing) {
    this.#completing = completing;
  }

  get command(): LockCommand {
    return this.#completing.command;
  }

  // Rule 15: the same text and the same times in every copy.
  get record(): string {
    return this.#completing.plan.record;
  }

  get expiresAtMs(): number {
    return this.#completing.plan.expiresAtMs;
  }

  get cooldownUntilMs(): number {
    return this.#completing.plan.cooldownUntilMs;
  }

  answer(reply: CompleteReply): void {
    this.#completing.answered(this, reply);
  }
}

/**
 * ```
 * sent ── answered ────────────────────────────▶ recorded, late, expired, duplicate
 *   │ ─── unknown ─────────────────────────────▶ sent again: once at once, then as below
 *   │ ─── no answer for commandTimeoutMs ──────▶ sent again
 *   │ ─── 2 × acquireTimeoutMs + ttlMs over ───▶ unconfirmed, and sent on: a late record harms nobody
 *   └──── maxHoldMs over as well, or dropped ──▶ given up: the lock runs out by itself
 * ```
 */
export class Completing extends Timer {
  readonly command: CallerCommand;
  readonly plan: CompletePlan;
  readonly startedAt: number = performance.now();
  readonly #runtime: CompleteRuntime;
  readonly #inFlight: InFlight;
  #onCompleted: OnCompleted | undefined;
  #unanswered: Request | undefined;
  #sentAt = 0;
  #notBefore = 0;
  #lostAReply = false;
  #lastFailure: NoAnswer | undefined;
  #ended = false;

  constructor(
    runtime: CompleteRuntime,
    command: CallerCommand,
    inFlight: InFlight,
    plan: CompletePlan,
    onCompleted: OnCompleted,
  ) {
    super();
    this.#runtime = runtime;
    this.command = command;
    this.#inFlight = inFlight;
    this.plan = plan;
    this.#onCompleted = onCompleted;
  }

  /** For how long after the first send the lease is extended on. */
  static patienceMs({ acquireTimeoutMs, ttlMs }: LockCommand["times"]): number {
    return 2 * acquireTimeoutMs + ttlMs;
  }

  send(now: number): void {
    const request = new Request(this);
    this.#unanswered = request;
    this.#sentAt = now;
    this.#setTimer(now);
    // Whoever makes a lease of a submission has seen that the store has it.
    this.#runtime.store.complete?.(request);
  }

  override onDue(): void {
    const now = performance.now();
    const { times } = this.command;
    const ageMs = now - this.startedAt;
    const patienceMs = Completing.patienceMs(times);
    if (ageMs >= patienceMs) this.#report("unconfirmed", this.#cause());
    if (ageMs >= Math.max(patienceMs, times.maxHoldMs)) this.#end("unconfirmed");
    else if (this.#mayBeSent(now)) this.send(now);
    else this.#setTimer(now);
  }

  /** One timer for the next send and the end of the patience, whichever comes first. */
  #setTimer(now: number): void {
    const dueAt = now + retryEveryMs;
    const reportAt = this.startedAt + Completing.patienceMs(this.command.times);
    const isReported = this.#onCompleted === undefined;
    this.#runtime.completions.set(this, isReported ? dueAt : Math.min(dueAt, reportAt));
  }

  #mayBeSent(now: number): boolean {
    if (this.#unanswered === undefined) return now >= this.#notBefore;
    return now - this.#sentAt >= this.command.times.commandTimeoutMs;
  }

  answered(request: Request, reply: CompleteReply): void {
    const isNewest = this.#unanswered === request;
    if (isNewest) this.#unanswered = undefined;
    if (this.#ended) return;
    switch (reply.kind) {
      case "unsent":
        this.#lastFailure = reply;
        return;
      case "rejected":
        this.#lastFailure = reply;
        if (reply.misconfigured) this.#notBefore = performance.now() + permissionRetryMs;
        return;
      case "unknown":
        this.#lastFailure = reply;
        // An older request decides nothing: the newest has a timer of its own.
        if (isNewest) this.#unknown();
        return;
      case "unrecordable": {
        const cause = new Error("something that is no record stands where this one belongs");
        this.#lastFailure = { kind: "rejected", cause, misconfigured: false };
        this.#answered("unconfirmed");
        return;
      }
      default:
        this.#answered(reply.kind);
    }
  }

  #unknown(): void {
    const isFirst = !this.#lostAReply;
    this.#lostAReply = true;
    // The first time at once: another connection may be ready.
    if (isFirst) this.send(performance.now());
  }

  #answered(outcome: CompleteOutcome): void {
    // Also where nobody waits for the outcome any more.
    if (outcome === "duplicate" && duplicateChannel.hasSubscribers) {
      const { key, keyPrefix } = this.command;
      const message = { key, keyPrefix };
      publish(duplicateChannel, this.command, message);
    }
    this.#end(outcome);
    // Rule 17: only now, when the record stands or never will.
    if (!this.#inFlight.isEmpty) release(this.#runtime, this.command, this.#inFlight, 0);
  }

  /** Rule 14: the lock is closed, and has waited long enough. */
  drop(): void {
    const cause = this.#cause();
    this.#report("unconfirmed", new LockClosedError("this lock was closed", { cause }));
    this.#end("unconfirmed");
  }

  /** Unconfirmed: nothing of the attempt deletes its lock, which runs out by itself. */
  #end(outcome: CompleteOutcome): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#runtime.completions.clear(this);
    this.#runtime.pendingRecordLength -= this.plan.record.length;
    this.#report(outcome, outcome === "unconfirmed" ? this.#cause() : undefined);
    this.#runtime.completes.done();
  }

  #cause(): Error {
    return toLockError(this.#lastFailure, Math.round(performance.now() - this.startedAt));
  }

  #report(outcome: CompleteOutcome, cause: Error | undefined): void {
    const onCompleted = this.#onCompleted;
    if (onCompleted === undefined) return;
    this.#onCompleted = undefined;
    const { command, plan } = this;
    if (completeChannel.hasSubscribers) {
      const message = {
        key: command.key,
        keyPrefix: command.keyPrefix,
        outcome,
        durationMs: performance.now() - this.startedAt,
        heldMs: plan.heldMs,
        length: plan.record.length,
        bodyDropped: plan.bodyDropped,
        cause,
      };
      publish(completeChannel, command, message);
    }
    onCompleted(outcome, cause);
  }
}
