import { InvalidOptionError, LockClosedError } from "../errors.ts";
import { performance } from "../time.ts";
import { notARecord, ownError } from "../validation.ts";
import {
  type CompleteMessage,
  type CompleteOutcome,
  completeChannel,
  duplicateChannel,
} from "./channels.ts";
import type { LeaseClock } from "./held-lease.ts";
import { encodeRecord, type RecordContent } from "./record.ts";
import { type OnReport, Releasing, UntilAnswered } from "./release.ts";
import { type CallerCommand, type LockRuntime, publish } from "./runtime.ts";
import type { CompleteReply, CompleteRequest, NoAnswer, RecordBytes } from "./store.ts";

/** Called once, within 2 × `acquireTimeoutMs` + `ttlMs`. */
export type OnCompleted = OnReport<CompleteOutcome>;

/**
 * The most characters that a lock's unanswered records may have in all. Above that, a body is not
 * kept: a repeat does not run, and a guard refuses the repeat unless the answer is a redirect.
 */
const maxPendingLength = 8 * 1024 * 1024;

/** How long, in ms, a complete is sent at most: also in an outage that is longer than the lease. */
const longestSendMs = 600_000;

/** Beyond so many, and after `close`, a complete is sent until `maxHoldMs`: they would add up. */
const mostSentLong = 1_000;

/**
 * Rule 17: a complete is sent until it is answered, and requests in flight are retired only after
 * that: an earlier release could leave neither record nor lock, and a repeat would run.
 *
 * ```
 * answered ────▶ recorded, late, expired, duplicate; unconfirmed where the store cannot record
 * 2 × acquireTimeoutMs + ttlMs over ───────────▶ unconfirmed, and sent again: no harm if late
 * ten minutes or retainMs over (maxHoldMs behind 1,000 others), or dropped by close ──▶ given up
 * ```
 */
export class Completing extends UntilAnswered<CompleteRequest, CompleteReply, CompleteOutcome> {
  readonly #id: string;
  // Rules 15 and 19: record, expiry and end of the cooldown are made once, and equal in each copy.
  readonly #record: RecordBytes;
  readonly #expiresAtMs: number;
  readonly #cooldownUntilMs: number;
  readonly #message: Pick<CompleteMessage, "submission" | "heldMs" | "length" | "bodyDropped">;

  constructor(
    runtime: LockRuntime,
    command: CallerCommand,
    content: RecordContent,
    storeTimeMs: number,
    cooldownUntilMs: number,
    heldMs: number,
    clock: LeaseClock | undefined,
    onCompleted: OnCompleted,
  ) {
    const { identity, retainMs, submission, times } = command;
    if (submission === undefined) {
      throw new InvalidOptionError(
        "complete: expected a lease of acquire(userId, { submission }), got one without a submission",
      );
    }
    const encode = (kept: RecordContent) => encodeRecord(command, kept, storeTimeMs, runtime.seal);
    const whole = encode(content);
    const pendingLength = runtime.pendingRecordLength + whole.length;
    const { body, json } = content;
    const bodyDropped = (body ?? json) !== undefined && pendingLength > maxPendingLength;
    const record = bodyDropped ? encode({ ...content, body: undefined, json: undefined }) : whole;
    const { completes, completeTimers, patienceMs } = runtime;
    const isLong = completes.count < mostSentLong && !runtime.isDrained;
    const longestMs = isLong ? longestSendMs : times.maxHoldMs;
    const giveUpMs = Math.max(patienceMs, Math.min(retainMs, longestMs));
    super(runtime, command, "complete", completeTimers, patienceMs, giveUpMs, clock, onCompleted);
    this.#message = { submission: identity?.id, heldMs, length: record.length, bodyDropped };
    this.#id = submission.id;
    this.#record = record;
    this.#expiresAtMs = storeTimeMs + retainMs;
    this.#cooldownUntilMs = cooldownUntilMs;
  }

  begin(): void {
    this.runtime.completes.count++;
    this.runtime.completing.set(this.#id, this);
    this.runtime.pendingRecordLength += this.#record.length;
    this.send(this.startedAt);
  }

  protected override request(): CompleteRequest {
    const request: CompleteRequest = {
      command: this.command,
      deadlineMs: undefined,
      record: this.#record,
      expiresAtMs: this.#expiresAtMs,
      cooldownUntilMs: this.#cooldownUntilMs,
      answer: (reply) => this.answered(request, reply),
    };
    return request;
  }

  protected override executed({ kind }: Exclude<CompleteReply, NoAnswer>): void {
    if (kind === "duplicate") publish(duplicateChannel, this.command, {});
    if (kind === "unrecordable") {
      this.lastFailure = { kind: "rejected", cause: ownError(notARecord), misconfigured: false };
    }
    // Rule 16: a copy that is sent in two steps finds no lock if another copy has released it.
    const outcome = kind === "late" && this.hasLetGo ? "recorded" : kind;
    this.end(outcome === "unrecordable" ? "unconfirmed" : outcome);
    // Rule 17: retire requests in flight only now, when the record is written or never will be.
    if (!this.command.inFlight.isEmpty) new Releasing(this.runtime, this.command).begin();
  }

  /** Rule 14: `close` waits no longer for this complete. */
  drop(): void {
    this.end(
      "unconfirmed",
      (cause) =>
        new LockClosedError(
          "close() stopped waiting for a complete that Redis has not answered, so the submission's answer may not be kept. Give close() a longer timeoutMs",
          { cause },
        ),
    );
  }

  protected override end(
    outcome: CompleteOutcome = "unconfirmed",
    closed?: (cause: Error) => Error,
  ): void {
    this.hasEnded = true;
    this.runtime.completeTimers.clear(this);
    if (this.runtime.completing.get(this.#id) === this) this.runtime.completing.delete(this.#id);
    this.runtime.pendingRecordLength -= this.#record.length;
    // Published here and not in `report`: the caller may have got `unconfirmed` long before.
    if (completeChannel.hasSubscribers) {
      const durationMs = performance.now() - this.startedAt;
      const cause = outcome === "unconfirmed" ? this.failure(closed) : undefined;
      publish(completeChannel, this.command, { ...this.#message, outcome, durationMs, cause });
    }
    this.report(outcome, closed);
    this.runtime.completes.done();
  }
}
