import { performance } from "../time.ts";
import { Timer, type TimerWheel } from "../timers.ts";
import { type ReleaseOutcome, type RetireMessage, retireChannel } from "./channels.ts";
import type { LeaseClock } from "./held-lease.ts";
import {
  type CallerCommand,
  isNoAnswer,
  type LockRuntime,
  publish,
  toLockError,
  write,
} from "./runtime.ts";
import type { LockRequest, NoAnswer, OwnedReply, RecordBytes, ReleaseRequest } from "./store.ts";

/** From a send to the next, in ms, after `unsent`, a lost connection, or an answer to a retire. */
const retryEveryMs = 50;

/** The longest pause, in ms, after errors of the server: 50, 100, 200, … up to this. */
const longestPauseMs = 1_000;

/**
 * How long a told answer is kept, in ms, beyond `commandTimeoutMs`: a caller that waits looks more
 * than twice in that time.
 */
const toldMs = 1_000;

/** Called once with the outcome; `cause` says why it is unconfirmed. */
export type OnReport<Outcome> = (outcome: Outcome | "unconfirmed", cause?: Error) => void;

/**
 * A release or a complete, sent until the store has executed it, also after its caller has got
 * `unconfirmed`.
 *
 * ```
 * sent ── answered ─────────────────────────▶ decided by the subclass
 *   │ ─── unknown ──────────────────────────▶ sent again: the first time at once, then as below
 *   │ ─── unsent, connection lost ──────────▶ sent again after 50 ms
 *   │ ─── an error of the server ───────────▶ sent again after 50 ms, then twice as long, up to 1 s
 *   │ ─── rejected as misconfigured ────────▶ sent again after 1 s
 *   │ ─── no answer for commandTimeoutMs ───▶ sent again, now ambiguous
 *   │ ─── reportAfterMs is over ────────────▶ reported as unconfirmed, and sent again
 *   └──── giveUpAfterMs is over as well ────▶ given up
 * ```
 */
export abstract class UntilAnswered<
  Request extends LockRequest<never>,
  Reply extends { readonly kind: string },
  Outcome extends string,
> extends Timer {
  readonly startedAt: number = performance.now();
  protected readonly runtime: LockRuntime;
  readonly command: CallerCommand;
  protected lastFailure: NoAnswer | undefined;
  protected isDenied = false;
  protected hasEnded = false;
  readonly #method: "release" | "complete";
  readonly #timers: TimerWheel;
  readonly #reportAfterMs: number;
  readonly #giveUpAfterMs: number;
  #onReport: OnReport<Outcome> | undefined;
  #unanswered: Request | undefined;
  #sentAt = 0;
  #failures = 0;
  /** An earlier try got no answer or `unknown`: it may have taken effect. */
  #isAmbiguous = false;
  readonly #clock: LeaseClock | undefined;
  #notBefore = 0;

  /**
   * The caller waits for `reportAfterMs`; the command is sent again until `giveUpAfterMs`.
   * @param clock tells whether the lease could still be valid; `undefined` if it is lost or was none.
   */
  constructor(
    runtime: LockRuntime,
    command: CallerCommand,
    method: "release" | "complete",
    timers: TimerWheel,
    reportAfterMs: number,
    giveUpAfterMs: number,
    clock: LeaseClock | undefined,
    onReport: OnReport<Outcome> | undefined,
  ) {
    super();
    this.runtime = runtime;
    this.command = command;
    this.#method = method;
    this.#timers = timers;
    this.#reportAfterMs = reportAfterMs;
    this.#giveUpAfterMs = giveUpAfterMs;
    this.#clock = clock;
    this.#onReport = onReport;
  }

  /** Rule 8: a lock gone while its lease is valid was released by a try that got no answer. */
  protected get hasLetGo(): boolean {
    return this.#isAmbiguous && this.#clock?.isValid === true;
  }

  protected abstract request(): Request;

  protected abstract executed(reply: Exclude<Reply, NoAnswer>, request: Request): void;

  /** Stops the sending: called once `giveUpAfterMs` is over, or earlier by the subclass itself. */
  protected abstract end(): void;

  /** Called when the store first rejects the command as misconfigured, such as not permitted. */
  protected denied(): void {}

  send(now: number): void {
    const request = this.request();
    this.#unanswered = request;
    this.#sentAt = now;
    this.#setTimer(now);
    write(this.runtime.store, this.#method, request as never);
  }

  #setTimer(now: number, waitsUntil = Infinity): void {
    const dueAt = Math.min(now + retryEveryMs, waitsUntil);
    const reportAt = this.startedAt + this.#reportAfterMs;
    this.#timers.set(this, this.#onReport === undefined ? dueAt : Math.min(dueAt, reportAt));
  }

  override onDue(): void {
    const now = performance.now();
    const ageMs = now - this.startedAt;
    const silentUntil = this.#sentAt + this.command.times.commandTimeoutMs;
    const waitsUntil = this.#unanswered === undefined ? this.#notBefore : silentUntil;
    if (ageMs >= this.#reportAfterMs) this.report("unconfirmed");
    if (ageMs >= this.#giveUpAfterMs) this.end();
    else if (now < waitsUntil) this.#setTimer(now, waitsUntil);
    else this.sendAgain(now);
  }

  sendAgain(now: number): void {
    this.#isAmbiguous ||= this.#unanswered !== undefined;
    this.send(now);
  }

  protected answered(request: Request, reply: Reply | NoAnswer): void {
    if (this.hasEnded) return;
    if (this.#unanswered === request) this.#unanswered = undefined;
    if (!isNoAnswer(reply)) {
      this.executed(reply as Exclude<Reply, NoAnswer>, request);
      return;
    }
    this.lastFailure = reply;
    const now = performance.now();
    if (reply.kind === "unknown" && !this.#isAmbiguous) {
      this.#isAmbiguous = true;
      // The first time, send again at once: another connection may be ready.
      this.send(now);
      return;
    }
    if (reply.kind === "unsent" || (reply.kind === "unknown" && !reply.isAnswered)) return;
    // Pause longer: 20 requests a second for each record do not end a quota, or empty a disk. An
    // error within a pause does not double it: the error is late, or of a new connection's send.
    if (now >= this.#notBefore) this.#failures++;
    const isFinal = reply.kind === "rejected" && reply.misconfigured;
    const pauseMs = isFinal ? longestPauseMs : retryEveryMs * 2 ** (this.#failures - 1);
    this.#notBefore = now + Math.min(pauseMs, longestPauseMs);
    if (!isFinal || this.isDenied) return;
    this.isDenied = true;
    this.denied();
  }

  protected report(outcome: Outcome | "unconfirmed", closed?: (cause: Error) => Error): void {
    const onReport = this.#onReport;
    if (onReport === undefined) return;
    const cause = outcome === "unconfirmed" ? this.failure(closed) : undefined;
    this.#onReport = undefined;
    onReport(outcome, cause);
  }

  /**
   * Returns an error that says why and for how long no answer came. That time is capped: at
   * `#reportAfterMs` until the report, then at `#giveUpAfterMs`. @param closed wraps the error.
   */
  protected failure(closed?: (cause: Error) => Error): Error {
    const boundMs = this.#onReport === undefined ? this.#giveUpAfterMs : this.#reportAfterMs;
    const ageMs = performance.now() - this.startedAt;
    const cause = toLockError(this.lastFailure, Math.round(Math.min(ageMs, boundMs)));
    return closed === undefined ? cause : closed(cause);
  }
}

/** Called once, within `acquireTimeoutMs`. */
export type OnReleased = OnReport<ReleaseOutcome>;

interface Request extends ReleaseRequest {
  /** The latest deadline of the requests that were in flight when this one was sent. */
  readonly inFlightUntilMs: number;
}

interface ReleaseEnds {
  readonly clock?: LeaseClock;
  readonly onReleased?: OnReleased | undefined;
  readonly cooldownUntilMs?: number;
  readonly told?: RecordBytes | undefined;
}

/**
 * A release: if the key holds the owner id, deletes the key or leaves a cooldown. While requests of
 * the acquire are in flight, a release is a retire, which ends when none of them can take effect:
 *
 * ```
 * answered ── store time after every deadline ──▶ final
 *     │ ───── a request may come later ─────────▶ sent again after 50 ms (retiring)
 * given up ── after 2 × acquireTimeoutMs + ttlMs ──▶ abandoned: the key runs out by itself
 * ```
 */
export class Releasing extends UntilAnswered<Request, OwnedReply, ReleaseOutcome> {
  /** Whether a request of the acquire was in flight at the beginning: then this is a retire. */
  readonly #retires: boolean;
  #cooldownUntilMs: number;
  #told: ReleaseRequest["told"];

  constructor(
    runtime: LockRuntime,
    command: CallerCommand,
    { clock, onReleased, cooldownUntilMs = 0, told }: ReleaseEnds = {},
  ) {
    const { patienceMs, timers, times } = runtime;
    const { acquireTimeoutMs, commandTimeoutMs } = times;
    super(runtime, command, "release", timers, acquireTimeoutMs, patienceMs, clock, onReleased);
    this.#retires = !command.inFlight.isEmpty;
    this.#cooldownUntilMs = cooldownUntilMs;
    this.#told =
      told === undefined ? undefined : { record: told, lifeMs: toldMs + commandTimeoutMs };
  }

  begin(): void {
    this.runtime.releases.count++;
    this.send(this.startedAt);
  }

  protected override request(): Request {
    const request: Request = {
      command: this.command,
      deadlineMs: undefined,
      // Read before the send: a request that is resolved afterwards was in flight during this try.
      inFlightUntilMs: this.#retires ? this.command.inFlight.latestDeadlineMs : -Infinity,
      cooldownUntilMs: this.#cooldownUntilMs,
      told: this.#told,
      answer: (reply) => this.answered(request, reply),
    };
    // Rule 25: only the first request tells the answer. If Redis refuses, the next only releases.
    this.#told = undefined;
    return request;
  }

  protected override executed(reply: Exclude<OwnedReply, NoAnswer>, request: Request): void {
    const { kind } = reply;
    // `freed` (rule 19): the key holds our tombstone, so no earlier try has deleted it.
    const isOurDoing = kind === "done" || (kind !== "freed" && this.hasLetGo);
    this.report(isOurDoing ? "released" : kind);
    // Rule 19: requests after the first answer only retire, and a retire sets no cooldown.
    this.#cooldownUntilMs = 0;
    // Rule 6: with every deadline over, no request in flight can take effect any more.
    if (reply.storeTimeMs > request.inFlightUntilMs) this.end("final");
  }

  /** Reports at once that the store denies the release, so that `close` does not wait for it. */
  protected override denied(): void {
    this.report("unconfirmed");
    this.runtime.releases.done();
  }

  protected override end(outcome: RetireMessage["outcome"] = "abandoned"): void {
    this.hasEnded = true;
    this.runtime.timers.clear(this);
    if (this.#retires && retireChannel.hasSubscribers) {
      const durationMs = performance.now() - this.startedAt;
      publish(retireChannel, this.command, { outcome, durationMs });
    }
    if (!this.isDenied) this.runtime.releases.done();
  }
}
