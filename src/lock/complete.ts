import { InvalidOptionError, LockClosedError } from "../errors.ts";
import { type CompleteOutcome, completeChannel, duplicateChannel, publish } from "./channels.ts";
import { type AnswerToStore, encodeRecord } from "./record.ts";
import { release } from "./release.ts";
import type { CallerCommand, InFlight, LockRuntime } from "./runtime.ts";
import type { CompleteReply, CompleteRequest, LockCommand, NoAnswer } from "./store.ts";
import { type OnReport, UntilAnswered } from "./until-answered.ts";

/** Called once, within 2 × `acquireTimeoutMs` + `ttlMs`. */
export type OnCompleted = OnReport<CompleteOutcome>;

/** The writes of one complete. Rule 15: stamped once, and equal in every copy. */
export interface CompletePlan {
  readonly record: string;
  /** By the store's clock, in whole milliseconds. */
  readonly expiresAtMs: number;
  readonly cooldownUntilMs: number;
  /** The answer's body was left out, because too much waits in memory. */
  readonly bodyDropped: boolean;
  /** For how long the lock had been held. */
  readonly heldMs: number;
}

/** How many characters of records of one lock may wait for an answer of the store. */
const maxPendingLength = 8 * 1024 * 1024;

/**
 * @param pendingLength how many characters of records wait already. Beyond 8 Mi characters the body
 * is left out: that the submission was done matters more than its answer.
 * @throws InvalidOptionError without a submission.
 */
export function planComplete(
  { submission, ownerId, retainMs }: CallerCommand,
  answer: AnswerToStore,
  storeTimeMs: number,
  cooldownMs: number,
  pendingLength: number,
  heldMs: number,
): CompletePlan {
  if (submission === undefined) {
    throw new InvalidOptionError(
      "complete: expected a lease of acquire(userId, { submission }), got one without a submission",
    );
  }
  const encode = (kept: AnswerToStore) =>
    encodeRecord(submission.fingerprint, ownerId, kept, storeTimeMs);
  const whole = encode(answer);
  const bodyDropped = answer.body !== undefined && pendingLength + whole.length > maxPendingLength;
  return {
    record: bodyDropped ? encode({ ...answer, body: undefined }) : whole,
    expiresAtMs: storeTimeMs + retainMs,
    cooldownUntilMs: cooldownMs === 0 ? 0 : storeTimeMs + cooldownMs,
    bodyDropped,
    heldMs,
  };
}

/**
 * Rule 17: writes the record and lets go of the lock, sent until it is answered. The requests in
 * flight are retired only then: a compare-and-delete beside it could leave neither lock nor record.
 */
export function complete(
  runtime: LockRuntime,
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
 * answered ─────────────────────────────────────▶ recorded, late, expired, duplicate
 * 2 × acquireTimeoutMs + ttlMs over ────────────▶ unconfirmed, and sent on: a late record harms no user
 * maxHoldMs over as well, or dropped by close ──▶ given up: the lock runs out by itself
 * ```
 */
export class Completing extends UntilAnswered<CompleteReply, CompleteOutcome> {
  readonly plan: CompletePlan;
  readonly #inFlight: InFlight;

  constructor(
    runtime: LockRuntime,
    command: CallerCommand,
    inFlight: InFlight,
    plan: CompletePlan,
    onCompleted: OnCompleted,
  ) {
    const reportAfterMs = Completing.patienceMs(command.times);
    const giveUpAfterMs = Math.max(reportAfterMs, command.times.maxHoldMs);
    const patience = { reportAfterMs, giveUpAfterMs };
    super(runtime, command, "complete", runtime.completions, patience, (outcome, cause) => {
      if (completeChannel.hasSubscribers) this.#publish(outcome, cause);
      onCompleted(outcome, cause);
    });
    this.plan = plan;
    this.#inFlight = inFlight;
  }

  /** For how long after the first send the lease is extended on. */
  static patienceMs({ acquireTimeoutMs, ttlMs }: LockCommand["times"]): number {
    return 2 * acquireTimeoutMs + ttlMs;
  }

  protected override request(): Request {
    return new Request(this);
  }

  protected override executed(_request: Request, reply: Exclude<CompleteReply, NoAnswer>): void {
    if (this.hasEnded) return;
    if (reply.kind === "unrecordable") {
      const cause = new Error("something that is not a record is in this record's place");
      this.lastFailure = { kind: "rejected", cause, misconfigured: false };
    }
    // Also where the caller has been answered already.
    if (reply.kind === "duplicate" && duplicateChannel.hasSubscribers) {
      const { key, keyPrefix } = this.command;
      publish(duplicateChannel, this.command, { key, keyPrefix });
    }
    this.#end(reply.kind === "unrecordable" ? "unconfirmed" : reply.kind);
    // Rule 17: only now, when the record stands or never will.
    if (!this.#inFlight.isEmpty) release(this.runtime, this.command, this.#inFlight, 0);
  }

  protected override givenUp(): void {
    this.#end("unconfirmed");
  }

  /** Rule 14: the lock is closed, and has waited long enough. */
  drop(): void {
    this.report("unconfirmed", (cause) => new LockClosedError("this lock was closed", { cause }));
    this.#end("unconfirmed");
  }

  /** Unconfirmed: nothing of the attempt deletes its lock, which runs out by itself. */
  #end(outcome: CompleteOutcome): void {
    if (!this.end()) return;
    this.runtime.pendingRecordLength -= this.plan.record.length;
    this.report(outcome);
    this.runtime.completes.done();
  }

  #publish(outcome: CompleteOutcome, cause: Error | undefined): void {
    const { command, plan } = this;
    publish(completeChannel, command, {
      key: command.key,
      keyPrefix: command.keyPrefix,
      outcome,
      durationMs: performance.now() - this.startedAt,
      heldMs: plan.heldMs,
      length: plan.record.length,
      bodyDropped: plan.bodyDropped,
      cause,
    });
  }
}
