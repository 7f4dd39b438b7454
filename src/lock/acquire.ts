import { LockUnavailableError } from "../errors.ts";
import { performance } from "../time.ts";
import { Timer } from "../timers.ts";
import { acquireChannel } from "./channels.ts";
import { HeldLease, LeaseClock } from "./held-lease.ts";
import { closedAttempt, type SubmissionAttempt, UserLease } from "./lease.ts";
import { completedOf } from "./record.ts";
import { Releasing } from "./release.ts";
import { type CallerCommand, type LockRuntime, publish, toLockError, write } from "./runtime.ts";
import type { AcquireReply, AcquireRequest, Answered, NoAnswer } from "./store.ts";

/**
 * Receives the end of an attempt, within `acquireTimeoutMs`. `holderId`: the owner id of a holder
 * that is at work on the same submission. `isRepeat`: this lock was completing an earlier run of the
 * submission when the attempt asked.
 */
export type OnEnd = (
  attempt: SubmissionAttempt,
  holderId: string | undefined,
  isRepeat: boolean,
) => void;

/**
 * One attempt: one owner id, one idempotent acquire in as many requests as it takes, one verdict.
 *
 * ```
 * sent ── taken, mine ───────────────▶ acquired; unavailable if late, or for a repeat (rule 17)
 *   │ ─── contended ─────────────────▶ contended
 *   │ ─── completed, mismatched ─────▶ completed, mismatched
 *   │ ─── rejected, none in flight ──▶ unavailable
 *   │ ─── any other failure, out of window, no answer for commandTimeoutMs ──▶ sent again
 *   └──── acquireTimeoutMs is over ──▶ unavailable
 * ```
 */
export class Acquiring extends Timer {
  /** Rule 1: the lease's time begins before the first send. */
  readonly #clock = new LeaseClock();
  readonly #endsAt: number;
  readonly #runtime: LockRuntime;
  readonly #command: CallerCommand;
  readonly #onEnd: OnEnd;
  #newest: AcquireRequest | undefined;
  #isRepeat = false;
  #copies = 0;
  #retries = 0;
  #wasOutOfWindow = false;
  #lostAReply = false;
  #lastFailure: NoAnswer | undefined;
  #holderId: string | undefined;
  #ended = false;

  constructor(runtime: LockRuntime, command: CallerCommand, onEnd: OnEnd) {
    super();
    this.#runtime = runtime;
    this.#command = command;
    this.#onEnd = onEnd;
    this.#endsAt = this.#clock.startedAt + command.times.acquireTimeoutMs;
  }

  begin(): void {
    this.#runtime.active.count++;
    this.#send(this.#clock.startedAt);
  }

  #send(now: number): void {
    const command = this.#command;
    const request: AcquireRequest = {
      command,
      deadlineMs: undefined,
      onlyLooks: false,
      answer: (reply) => this.#answered(request, reply),
    };
    if (command.submission !== undefined) this.#isRepeat ||= this.#isCompleting();
    this.#newest = request;
    this.#copies++;
    command.inFlight.add(request);
    // The timer fires at the next send or, if earlier, at the end of `acquireTimeoutMs`.
    const sendAt = now + command.times.commandTimeoutMs;
    this.#runtime.timers.set(this, Math.min(sendAt, this.#endsAt));
    write(this.#runtime.store, "acquire", request);
  }

  override onDue(): void {
    const now = performance.now();
    if (now >= this.#endsAt) this.#unavailable();
    // Rule 4, the confirm: send the command again. The store avoids a connection that is silent.
    else this.#send(now);
  }

  #answered(request: AcquireRequest, reply: AcquireReply): void {
    // Rule 2: a request is in flight until it is certain that it cannot take effect later.
    if (reply.kind !== "unknown") this.#command.inFlight.resolve(request);
    if (reply.kind === "unsent") this.#copies--;
    if (this.#ended) return;
    switch (reply.kind) {
      case "taken":
      case "mine": {
        const now = this.#clock.now();
        if (this.#command.submission !== undefined) this.#isRepeat ||= this.#isCompleting();
        // Rule 3: retire a late grant. The caller was promised an answer within `acquireTimeoutMs`.
        // Rule 17: and that of a repeat. Its record may have been written behind the grant and read
        // before it: the replies of two connections come in any order.
        if (now >= this.#endsAt || this.#isRepeat) {
          this.#unavailable({ isHeld: true });
          break;
        }
        const { fencingToken, kind, storeTimeMs } = reply;
        const confirmed = kind === "mine" || !this.#command.inFlight.isEmpty;
        const held = new HeldLease(
          this.#runtime,
          this.#command,
          this.#clock,
          fencingToken,
          storeTimeMs - performance.now(),
        );
        this.#end({ outcome: "acquired", lease: new UserLease(held), confirmed });
        break;
      }
      case "contended": {
        const { expiresInMs, holderId, isCooldown = false, sameSubmission = false } = reply;
        this.#holderId = holderId;
        this.#end({ outcome: "contended", expiresInMs, sameSubmission, isCooldown });
        break;
      }
      // Rule 16: a record counts even if a request in flight took the key. Rule 5 deletes that key.
      case "completed": {
        const { answer, ageMs } = completedOf(reply, request.command, this.#runtime.seal);
        this.#end({ outcome: "completed", answer, ageMs });
        break;
      }
      case "mismatched":
        this.#end({ outcome: "mismatched", inFlight: reply.inFlight });
        break;
      case "told":
        // A store answers `told` to look-ups alone, and this is an acquire.
        break;
      default:
        // The failure of an older request decides nothing: the timer of the newest goes on.
        if (request === this.#newest) this.#noVerdict(reply);
    }
  }

  #isCompleting(): boolean {
    return this.#runtime.completingOf(this.#command) !== undefined;
  }

  #noVerdict(reply: Answered<"outOfWindow"> | NoAnswer): void {
    // Keep a misconfiguration as the cause: it tells the caller more than a later failure.
    const last = this.#lastFailure;
    const isFinal = last?.kind === "rejected" && last.misconfigured;
    if (reply.kind !== "outOfWindow" && !isFinal) this.#lastFailure = reply;
    let atOnce = false;
    if (reply.kind === "outOfWindow") {
      // Send again at once: this answer has the server's time, so the next deadline is right.
      atOnce = !this.#wasOutOfWindow;
      this.#wasOutOfWindow = true;
    } else if (reply.kind === "unknown") {
      // Rule 4: confirm at once after the first lost reply.
      atOnce = !this.#lostAReply;
      this.#lostAReply = true;
    }
    const now = performance.now();
    // A rejection with no request in flight is certain: no request took effect and none will.
    const isCertain = reply.kind === "rejected" && this.#command.inFlight.isEmpty;
    // No acquire is written after `acquireTimeoutMs`, and no failure postpones that end.
    if (isCertain || now >= this.#endsAt) {
      this.#unavailable();
    } else if (atOnce) {
      this.#send(now);
    } else {
      const pauseMs = Math.min(5 * 2 ** this.#retries++, 100);
      this.#runtime.timers.set(this, Math.min(now + pauseMs, this.#endsAt));
    }
  }

  #unavailable({ isHeld = false } = {}): void {
    const lateMs = this.#clock.now() - this.#endsAt;
    const cause =
      isHeld && this.#isRepeat
        ? new LockUnavailableError(
            "the answer of this submission's first run may not be recorded yet. Ask again in a moment",
          )
        : toLockError(this.#lastFailure, this.#command.times.acquireTimeoutMs, lateMs);
    this.#end({ outcome: "unavailable", cause }, { isHeld });
  }

  #end(attempt: SubmissionAttempt, { isHeld = false } = {}): void {
    this.#ended = true;
    this.#runtime.timers.clear(this);
    if (attempt.outcome !== "unavailable") {
      if (this.#runtime.outage !== undefined) this.#runtime.storeAnswers(this.#command);
    } else if (!isHeld) {
      this.#runtime.storeIsAway(this.#command, this.#clock.startedAt, attempt.cause);
    }
    if (acquireChannel.hasSubscribers) {
      const { outcome } = attempt;
      publish(acquireChannel, this.#command, {
        outcome,
        durationMs: performance.now() - this.#clock.startedAt,
        copies: this.#copies,
        confirmed: outcome === "acquired" && attempt.confirmed,
        fencingToken: outcome === "acquired" ? attempt.lease.fencingToken : undefined,
        expiresInMs: outcome === "contended" ? attempt.expiresInMs : undefined,
        cause: outcome === "unavailable" ? attempt.cause : undefined,
      });
    }
    if (attempt.outcome !== "acquired") {
      // Rule 5: retire the requests, because one of them holds the key or may still take it.
      if (isHeld || !this.#command.inFlight.isEmpty) {
        // Rule 17: behind the record, or another process could run the submission in between.
        this.#runtime.completingOf(this.#command)?.sendAgain(performance.now());
        new Releasing(this.#runtime, this.#command).begin();
      }
      this.#runtime.active.done();
    } else if (this.#runtime.isDrained) {
      UserLease.heldOf(attempt.lease).release();
      this.#onEnd(closedAttempt(), undefined, false);
      return;
    }
    this.#onEnd(attempt, this.#holderId, this.#isRepeat);
  }
}
