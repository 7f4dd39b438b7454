import { Timer } from "../timer-wheel.ts";
import { acquireChannel, publish } from "./channels.ts";
import { HeldLease } from "./held-lease.ts";
import { closedAttempt, type SubmissionAttempt } from "./lease.ts";
import { toLockError } from "./no-answer.ts";
import { completedOf } from "./record.ts";
import { release } from "./release.ts";
import { type CallerCommand, InFlight, type LockRuntime, write } from "./runtime.ts";
import type {
  AcquireReply,
  AcquireRequest,
  Answered,
  CompletedAnswer,
  ContendedAnswer,
  GrantedAnswer,
  LockCommand,
  NoAnswer,
} from "./store.ts";

/** An attempt that was granted the key, before a lease is made of it. */
export interface Acquired {
  readonly outcome: "acquired";
  /** A reply had been lost or was late, and the owner id was confirmed. */
  readonly confirmed: boolean;
  /** `undefined` in a store that has none. */
  readonly fencingToken: number | undefined;
  /** Added to the monotonic clock, it gives a time that the store's clock has passed. */
  readonly storeOffsetMs: number;
  /** Monotonic time from before the first send: the lease counts from here. */
  readonly startedAt: number;
  /** The requests that may still take effect. */
  readonly inFlight: InFlight;
}

type Refused = Exclude<SubmissionAttempt, { outcome: "acquired" }>;

/** The end of an attempt: the lease, or why there is none. */
export type Settled =
  | { readonly outcome: "acquired"; readonly held: HeldLease; readonly confirmed: boolean }
  | Refused;

/**
 * Makes one attempt.
 *
 * @param publishes whether its end is a message on `submit-lock:acquire`.
 * @param ended called once, within `acquireTimeoutMs`.
 */
export function acquire(
  runtime: LockRuntime,
  command: CallerCommand,
  publishes: boolean,
  ended: (settled: Settled) => void,
): void {
  runtime.active.add();
  const acquiring = new Acquiring(runtime, command, publishes, ended);
  acquiring.send(acquiring.startedAt);
}

/** The pause before the n-th retry: doubles from 5 to 100 ms. */
function backoffMs(retries: number): number {
  return Math.min(5 * 2 ** retries, 100);
}

/** One write of the acquire. */
class Request implements AcquireRequest {
  readonly #acquiring: Acquiring;
  readonly onlyLooks = false;
  deadlineMs: number | undefined;

  constructor(acquiring: Acquiring) {
    this.#acquiring = acquiring;
  }

  get command(): LockCommand {
    return this.#acquiring.command;
  }

  answer(reply: AcquireReply): void {
    this.#acquiring.answered(this, reply);
  }
}

/**
 * One attempt: one owner id, as many requests of one idempotent acquire as it takes to get an
 * answer, one verdict.
 *
 * ```
 * sent ── taken, mine ───────────────▶ acquired
 *   │ ─── contended ─────────────────▶ contended
 *   │ ─── completed, mismatched ─────▶ completed, mismatched
 *   │ ─── rejected, none in flight ──▶ unavailable
 *   │ ─── unknown, unsent, out of window, no answer for commandTimeoutMs ──▶ sent again
 *   └──── acquireTimeoutMs is over ──▶ unavailable
 * ```
 */
class Acquiring extends Timer {
  readonly command: CallerCommand;
  /** Rule 1: the lease counts from before the first send. */
  readonly startedAt: number = performance.now();
  readonly #runtime: LockRuntime;
  readonly #publishes: boolean;
  readonly #onEnd: (settled: Settled) => void;
  readonly #inFlight = new InFlight();
  #newest: Request | undefined;
  #copies = 0;
  #retries = 0;
  #wasOutOfWindow = false;
  #lostAReply = false;
  #lastFailure: NoAnswer | undefined;
  #ended = false;

  constructor(
    runtime: LockRuntime,
    command: CallerCommand,
    publishes: boolean,
    onEnd: (settled: Settled) => void,
  ) {
    super();
    this.#runtime = runtime;
    this.command = command;
    this.#publishes = publishes;
    this.#onEnd = onEnd;
  }

  send(now: number): void {
    const request = new Request(this);
    this.#newest = request;
    this.#copies++;
    this.#inFlight.add(request);
    this.#setTimer(now + this.command.times.commandTimeoutMs);
    write(this.#runtime.store, "acquire", request);
  }

  /** Sets one timer for the next send or, if earlier, the end of the budget. */
  #setTimer(sendAt: number): void {
    this.#runtime.timers.set(this, Math.min(sendAt, this.#endsAt));
  }

  get #endsAt(): number {
    return this.startedAt + this.command.times.acquireTimeoutMs;
  }

  override onDue(): void {
    const now = performance.now();
    if (now >= this.#endsAt) this.#unavailable();
    // Rule 4, the confirm: the same command and owner id, on another connection where one is silent.
    else this.send(now);
  }

  answered(request: Request, reply: AcquireReply): void {
    this.#resolve(request, reply);
    if (this.#ended) return;
    // Rule 3, the verdict.
    switch (reply.kind) {
      case "taken":
      case "mine":
        this.#granted(reply);
        break;
      case "contended":
        this.#contended(reply);
        break;
      case "completed":
        this.#completed(reply);
        break;
      case "mismatched":
        this.#end({ outcome: "mismatched", inFlight: reply.inFlight });
        break;
      default:
        // The failure of an older request decides nothing: the newest has a timer of its own.
        if (request === this.#newest) this.#noVerdict(reply);
    }
  }

  #noVerdict(reply: Answered<"outOfWindow"> | NoAnswer): void {
    // Keep a misconfiguration as the cause: it tells the caller more than a later failure.
    const isFinal = this.#lastFailure?.kind === "rejected" && this.#lastFailure.misconfigured;
    if (reply.kind !== "outOfWindow" && !isFinal) this.#lastFailure = reply;
    switch (reply.kind) {
      case "outOfWindow": {
        // The store has learned the clock from this answer, so the next request is stamped rightly.
        const isFirst = !this.#wasOutOfWindow;
        this.#wasOutOfWindow = true;
        this.#sendAgain(isFirst);
        break;
      }
      case "unknown": {
        // Rule 4: the first confirm is sent at once.
        const isFirst = !this.#lostAReply;
        this.#lostAReply = true;
        this.#sendAgain(isFirst);
        break;
      }
      case "rejected":
        // Certain: no request took effect and none will. Asking again would only delay the answer.
        if (this.#inFlight.isEmpty) this.#unavailable();
        else this.#sendAgain(false);
        break;
      case "unsent":
        this.#sendAgain(false);
        break;
    }
  }

  #granted(reply: GrantedAnswer<"taken"> | GrantedAnswer<"mine">): void {
    const now = performance.now();
    // Rule 3: too late for a "yes", because the caller was promised an answer within the budget.
    if (now >= this.#endsAt) {
      this.#unavailable(true);
      return;
    }
    this.#end({
      outcome: "acquired",
      confirmed: reply.kind === "mine" || !this.#inFlight.isEmpty,
      fencingToken: reply.fencingToken,
      storeOffsetMs: reply.storeTimeMs - now,
      startedAt: this.startedAt,
      inFlight: this.#inFlight,
    });
  }

  #contended({ expiresInMs, isCooldown = false, sameSubmission = false }: ContendedAnswer): void {
    this.#end({ outcome: "contended", expiresInMs, sameSubmission, isCooldown });
  }

  /** Rule 16: the record counts even where a request in flight may hold the key; that is retired (rule 5). */
  #completed(reply: CompletedAnswer): void {
    const completed = completedOf(reply);
    if (completed !== undefined) {
      this.#end({ outcome: "completed", ...completed });
      return;
    }
    const cause = new Error("the record of this submission holds something else");
    this.#lastFailure = { kind: "rejected", cause, misconfigured: false };
    this.#unavailable();
  }

  #sendAgain(atOnce: boolean): void {
    const now = performance.now();
    // Nothing is written after the budget, and no answer can put off its end.
    if (now >= this.#endsAt) this.#unavailable();
    else if (atOnce) this.send(now);
    else this.#setTimer(now + backoffMs(this.#retries++));
  }

  /** Rule 2: a request is in flight until it is certain that it cannot take effect later. */
  #resolve(request: Request, reply: AcquireReply): void {
    if (reply.kind === "unknown") return;
    if (reply.kind === "unsent") this.#copies--;
    this.#inFlight.resolve(request);
  }

  #unavailable(isHeld = false): void {
    const cause = toLockError(this.#lastFailure, this.command.times.acquireTimeoutMs);
    this.#end({ outcome: "unavailable", cause }, isHeld);
  }

  /** @param isHeld whether the key holds the owner id although nothing was acquired. */
  #end(verdict: Acquired | Refused, isHeld = false): void {
    this.#ended = true;
    this.#runtime.timers.clear(this);
    if (this.#publishes && acquireChannel.hasSubscribers) this.#publish(verdict);
    this.#onEnd(this.#settle(verdict, isHeld));
  }

  /** Makes the lease, or retires the owner id. */
  #settle(verdict: Acquired | Refused, isHeld: boolean): Settled {
    if (verdict.outcome === "acquired" && !this.#runtime.isDrained) {
      // The lease takes the attempt's place among the active ones, without a moment in between.
      const held = new HeldLease(this.#runtime, this.command, verdict);
      return { outcome: "acquired", held, confirmed: verdict.confirmed };
    }
    // Rule 5.
    if (verdict.outcome === "acquired" || isHeld || !this.#inFlight.isEmpty) {
      release(this.#runtime, this.command, this.#inFlight, 0);
    }
    this.#runtime.active.done();
    return verdict.outcome === "acquired" ? closedAttempt() : verdict;
  }

  #publish(verdict: Acquired | Refused): void {
    const { key, keyPrefix } = this.command;
    const { outcome } = verdict;
    publish(acquireChannel, this.command, {
      key,
      keyPrefix,
      outcome,
      durationMs: performance.now() - this.startedAt,
      copies: this.#copies,
      confirmed: outcome === "acquired" && verdict.confirmed,
      fencingToken: outcome === "acquired" ? verdict.fencingToken : undefined,
      expiresInMs: outcome === "contended" ? verdict.expiresInMs : undefined,
      cause: outcome === "unavailable" ? verdict.cause : undefined,
    });
  }
}
