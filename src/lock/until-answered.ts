import { Timer, type TimerWheel } from "../timer-wheel.ts";
import { toLockError } from "./no-answer.ts";
import { type CallerCommand, type LockRuntime, write } from "./runtime.ts";
import type { LockRequest, NoAnswer } from "./store.ts";

/** How soon a request is sent again after an error, and a key that may come back is released again. */
const retryEveryMs = 50;

/** How soon it is sent again after "permission denied": waiting does not help, so it is asked rarely. */
const permissionRetryMs = 1_000;

/** Called once: the outcome, and why it is unconfirmed. */
export type OnReport<Outcome> = (
  outcome: Outcome | "unconfirmed",
  cause: Error | undefined,
) => void;

/** How long the caller waits for the outcome, and how long the request is sent. */
interface Patience {
  readonly reportAfterMs: number;
  readonly giveUpAfterMs: number;
}

/**
 * A release or a complete: sent until the store has answered, because no caller waits for it.
 *
 * ```
 * sent ── answered ─────────────────────────▶ decided by the subclass
 *   │ ─── unknown ──────────────────────────▶ sent again: the first time at once, then as below
 *   │ ─── unsent, rejected ─────────────────▶ sent again after 50 ms
 *   │ ─── permission denied ────────────────▶ sent again after 1 s
 *   │ ─── no answer for commandTimeoutMs ───▶ sent again, now ambiguous
 *   │ ─── reportAfterMs is over ────────────▶ reported as unconfirmed, and sent on
 *   └──── giveUpAfterMs is over as well ────▶ given up
 * ```
 */
export abstract class UntilAnswered<Reply, Outcome extends string> extends Timer {
  readonly command: CallerCommand;
  readonly startedAt: number = performance.now();
  protected readonly runtime: LockRuntime;
  /** An earlier try may have taken effect without its answer. */
  protected isAmbiguous = false;
  protected lastFailure: NoAnswer | undefined;
  protected hasEnded = false;
  readonly #method: "release" | "complete";
  readonly #timers: TimerWheel;
  readonly #patience: Patience;
  #onReport: OnReport<Outcome> | undefined;
  #unanswered: LockRequest<Reply> | undefined;
  #sentAt = 0;
  /** Not 0 once the store has said "permission denied". */
  #notBefore = 0;

  constructor(
    runtime: LockRuntime,
    command: CallerCommand,
    method: "release" | "complete",
    timers: TimerWheel,
    patience: Patience,
    onReport: OnReport<Outcome>,
  ) {
    super();
    this.runtime = runtime;
    this.command = command;
    this.#method = method;
    this.#timers = timers;
    this.#patience = patience;
    this.#onReport = onReport;
  }

  /** Makes the next request. */
  protected abstract request(): LockRequest<Reply>;

  /** The store has executed the request and answered. */
  protected abstract executed(request: LockRequest<Reply>, reply: Exclude<Reply, NoAnswer>): void;

  /** `giveUpAfterMs` is over: no further request is sent. */
  protected abstract givenUp(): void;

  /** The store has said "permission denied" for the first time. */
  protected denied(): void {}

  get isDenied(): boolean {
    return this.#notBefore > 0;
  }

  send(now: number): void {
    const request = this.request();
    this.#unanswered = request;
    this.#sentAt = now;
    this.#setTimer(now);
    write(this.runtime.store, this.#method, request as never);
  }

  /** Sets one timer for the next send or, if earlier, the end of the caller's patience. */
  #setTimer(now: number): void {
    const dueAt = now + retryEveryMs;
    const reportAt = this.startedAt + this.#patience.reportAfterMs;
    this.#timers.set(this, this.#onReport === undefined ? dueAt : Math.min(dueAt, reportAt));
  }

  override onDue(): void {
    const now = performance.now();
    const ageMs = now - this.startedAt;
    const isSilent = this.#unanswered !== undefined;
    if (ageMs >= this.#patience.reportAfterMs) this.report("unconfirmed");
    if (ageMs >= this.#patience.giveUpAfterMs) {
      this.givenUp();
    } else if (now < (isSilent ? this.#sentAt + this.#commandTimeoutMs : this.#notBefore)) {
      this.#setTimer(now);
    } else {
      this.isAmbiguous ||= isSilent;
      this.send(now);
    }
  }

  get #commandTimeoutMs(): number {
    return this.command.times.commandTimeoutMs;
  }

  answered(request: LockRequest<Reply>, reply: Reply | NoAnswer): void {
    if (this.#unanswered === request) this.#unanswered = undefined;
    const { kind } = reply as NoAnswer;
    if (kind !== "unsent" && kind !== "rejected" && kind !== "unknown") {
      this.executed(request, reply as Exclude<Reply, NoAnswer>);
      return;
    }
    const failure = reply as NoAnswer;
    this.lastFailure = failure;
    if (failure.kind === "rejected" && failure.misconfigured) {
      const isFirst = !this.isDenied;
      this.#notBefore = performance.now() + permissionRetryMs;
      if (isFirst) this.denied();
    } else if (failure.kind === "unknown") {
      const isFirst = !this.isAmbiguous;
      this.isAmbiguous = true;
      // The first time at once: another connection may be ready.
      if (isFirst && !this.hasEnded) this.send(performance.now());
    }
  }

  /** @returns false where it had ended before. */
  protected end(): boolean {
    if (this.hasEnded) return false;
    this.hasEnded = true;
    this.#timers.clear(this);
    return true;
  }

  protected report(outcome: Outcome | "unconfirmed", closed?: (cause: Error) => Error): void {
    const onReport = this.#onReport;
    if (onReport === undefined) return;
    this.#onReport = undefined;
    if (outcome !== "unconfirmed") {
      onReport(outcome, undefined);
      return;
    }
    const ageMs = performance.now() - this.startedAt;
    const withinMs = Math.round(Math.min(ageMs, this.#patience.reportAfterMs));
    const cause = toLockError(this.lastFailure, withinMs);
    onReport(outcome, closed === undefined ? cause : closed(cause));
  }
}
