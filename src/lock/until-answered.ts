import { Timer, type TimerWheel } from "../timer-wheel.ts";
import { type CallerCommand, type LockRuntime, toLockError, write } from "./runtime.ts";
import type { LockRequest, NoAnswer } from "./store.ts";

/** How soon a request is sent again after an error, and a key that may come back is released again. */
const retryEveryMs = 50;

/** How soon it is sent again after "permission denied": waiting does not help, so it is asked rarely. */
const permissionRetryMs = 1_000;

/** Called once: the outcome, and why it is unconfirmed. */
export type OnReport<Outcome> = (outcome: Outcome | "unconfirmed", cause?: Error) => void;

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
export abstract class UntilAnswered<
  Request extends LockRequest<never>,
  Reply,
  Outcome extends string,
> extends Timer {
  readonly startedAt: number = performance.now();
  protected readonly runtime: LockRuntime;
  protected readonly command: CallerCommand;
  /** An earlier try may have taken effect without its answer. */
  protected isAmbiguous = false;
  protected lastFailure: NoAnswer | undefined;
  /** Not 0 once the store has said "permission denied". */
  protected notBefore = 0;
  protected hasEnded = false;
  readonly #method: "release" | "complete";
  readonly #timers: TimerWheel;
  readonly #reportAfterMs: number;
  readonly #giveUpAfterMs: number;
  #onReport: OnReport<Outcome> | undefined;
  #unanswered: Request | undefined;
  #sentAt = 0;

  /**
   * @param reportAfterMs how long the caller waits for the outcome.
   * @param giveUpAfterMs how long the request is sent.
   */
  constructor(
    runtime: LockRuntime,
    command: CallerCommand,
    method: "release" | "complete",
    timers: TimerWheel,
    reportAfterMs: number,
    giveUpAfterMs: number,
    onReport: OnReport<Outcome> | undefined,
  ) {
    super();
    this.runtime = runtime;
    this.command = command;
    this.#method = method;
    this.#timers = timers;
    this.#reportAfterMs = reportAfterMs;
    this.#giveUpAfterMs = giveUpAfterMs;
    this.#onReport = onReport;
  }

  /** Makes the next request. */
  protected abstract request(): Request;

  /** The store has executed the request and answered. */
  protected abstract executed(reply: Exclude<Reply, NoAnswer>, request: Request): void;

  /** No further request is sent: `giveUpAfterMs` is over, unless the subclass says otherwise. */
  protected abstract end(): void;

  /** The store has said "permission denied" for the first time. */
  protected denied(): void {}

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
    const reportAt = this.startedAt + this.#reportAfterMs;
    this.#timers.set(this, this.#onReport === undefined ? dueAt : Math.min(dueAt, reportAt));
  }

  override onDue(): void {
    const now = performance.now();
    const ageMs = now - this.startedAt;
    const isSilent = this.#unanswered !== undefined;
    const silentUntil = this.#sentAt + this.command.times.commandTimeoutMs;
    if (ageMs >= this.#reportAfterMs) this.report("unconfirmed");
    if (ageMs >= this.#giveUpAfterMs) {
      this.end();
    } else if (now < (isSilent ? silentUntil : this.notBefore)) {
      this.#setTimer(now);
    } else {
      this.isAmbiguous ||= isSilent;
      this.send(now);
    }
  }

  protected answered(request: Request, reply: Reply | NoAnswer): void {
    if (this.hasEnded) return;
    if (this.#unanswered === request) this.#unanswered = undefined;
    const failure = reply as NoAnswer;
    if (failure.kind !== "unsent" && failure.kind !== "rejected" && failure.kind !== "unknown") {
      this.executed(reply as Exclude<Reply, NoAnswer>, request);
      return;
    }
    this.lastFailure = failure;
    if (failure.kind === "rejected" && failure.misconfigured) {
      const isFirst = this.notBefore === 0;
      this.notBefore = performance.now() + permissionRetryMs;
      if (isFirst) this.denied();
    } else if (failure.kind === "unknown" && !this.isAmbiguous) {
      this.isAmbiguous = true;
      // The first time at once: another connection may be ready.
      this.send(performance.now());
    }
  }

  protected report(outcome: Outcome | "unconfirmed", closed?: (cause: Error) => Error): void {
    const onReport = this.#onReport;
    if (onReport === undefined) return;
    this.#onReport = undefined;
    if (outcome !== "unconfirmed") {
      onReport(outcome);
      return;
    }
    const ageMs = performance.now() - this.startedAt;
    const withinMs = Math.round(Math.min(ageMs, this.#reportAfterMs));
    const cause = toLockError(this.lastFailure, withinMs);
    onReport(outcome, closed === undefined ? cause : closed(cause));
  }
}
