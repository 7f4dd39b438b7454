import { Timer, type TimerWheel } from "../timer-wheel.ts";
import type { Acquisition, Completed } from "./acquisition.ts";
import { InFlight } from "./in-flight.ts";
import { toLockError } from "./no-answer.ts";
import { decodeRecord } from "./record.ts";
import type {
  AcquireReply,
  AcquireRequest,
  Answered,
  CompletedAnswer,
  GrantedAnswer,
  LockCommand,
  LockStore,
  NoAnswer,
} from "./store.ts";

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
 *
 * @param ended called once, within `acquireTimeoutMs`.
 */
export function acquire(
  store: LockStore,
  command: LockCommand,
  timers: TimerWheel,
  ended: (acquisition: Acquisition) => void,
): void {
  const acquiring = new Acquiring(store, command, timers, ended);
  acquiring.send(acquiring.startedAt);
}

/** The pause before the n-th retry: doubles from 5 to 100 ms. */
function backoffMs(retries: number): number {
  return Math.min(5 * 2 ** retries, 100);
}

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

class Acquiring extends Timer implements Acquisition {
  readonly command: LockCommand;
  /** Rule 1: the lease counts from before the first send. */
  readonly startedAt: number = performance.now();
  readonly inFlight: InFlight = new InFlight();
  outcome: Acquisition["outcome"] = "unavailable";
  confirmed = false;
  fencingToken: number | undefined;
  storeOffsetMs = 0;
  expiresInMs = 0;
  sameSubmission = false;
  isCooldown = false;
  completed: Completed | undefined;
  otherInFlight = false;
  cause: Acquisition["cause"];
  copies = 0;
  mayHold = false;
  readonly #store: LockStore;
  readonly #timers: TimerWheel;
  readonly #onEnd: (acquisition: Acquisition) => void;
  #newest: Request | undefined;
  #retries = 0;
  #wasOutOfWindow = false;
  #lostAReply = false;
  #lastFailure: NoAnswer | undefined;
  #ended = false;

  constructor(
    store: LockStore,
    command: LockCommand,
    timers: TimerWheel,
    onEnd: (acquisition: Acquisition) => void,
  ) {
    super();
    this.#store = store;
    this.command = command;
    this.#timers = timers;
    this.#onEnd = onEnd;
  }

  send(now: number): void {
    const request = new Request(this);
    this.#newest = request;
    this.copies++;
    this.inFlight.add(request);
    this.#setTimer(now + this.command.times.commandTimeoutMs);
    this.#store.acquire(request);
  }

  /** One timer for the next send and the end of the budget, whichever comes first. */
  #setTimer(sendAt: number): void {
    this.#timers.set(this, Math.min(sendAt, this.#endsAt));
  }

  get #endsAt(): number {
    return this.startedAt + this.command.times.acquireTimeoutMs;
  }

  override onDue(): void {
    const now = performance.now();
    if (now >= this.#endsAt) this.#end("unavailable");
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
        this.expiresInMs = reply.expiresInMs;
        this.sameSubmission = reply.sameSubmission === true;
        this.isCooldown = reply.isCooldown === true;
        this.#end("contended");
        break;
      case "completed":
        this.#wasCompleted(reply);
        break;
      case "mismatched":
        this.otherInFlight = reply.inFlight;
        this.mayHold = reply.isHeld === true;
        this.#end("mismatched");
        break;
      default:
        // The failure of an older request decides nothing: the newest has a timer of its own.
        if (request === this.#newest) this.#noVerdict(reply);
    }
  }

  #noVerdict(reply: Answered<"outOfWindow"> | NoAnswer): void {
    // What waiting does not mend says more than whatever comes after it.
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
        // Rule 4: the first confirm goes out at once.
        const isFirst = !this.#lostAReply;
        this.#lostAReply = true;
        this.#sendAgain(isFirst);
        break;
      }
      case "rejected":
        // Certain: no request took effect and none will. Asking again would only delay the answer.
        if (this.inFlight.isEmpty) this.#end("unavailable");
        else this.#sendAgain(false);
        break;
      case "unsent":
        this.#sendAgain(false);
        break;
    }
  }

  #granted(reply: GrantedAnswer<"taken"> | GrantedAnswer<"mine">): void {
    const now = performance.now();
    if (now < this.#endsAt) {
      this.confirmed = reply.kind === "mine" || !this.inFlight.isEmpty;
      this.fencingToken = reply.fencingToken;
      this.storeOffsetMs = reply.storeTimeMs - now;
      this.#end("acquired");
      return;
    }
    // Rule 3: too late for a "yes", because the caller was promised an answer within the budget.
    this.mayHold = true;
    this.#end("unavailable");
  }

  /** Rule 16: the record counts even where this owner id holds the key; that is retired (rule 5). */
  #wasCompleted({ isHeld, record, storeTimeMs }: CompletedAnswer): void {
    this.mayHold = isHeld === true;
    const decoded = decodeRecord(record);
    if (decoded === undefined) {
      const cause = new Error("the record of this submission holds something else");
      this.#lastFailure = { kind: "rejected", cause, misconfigured: false };
      this.#end("unavailable");
      return;
    }
    const ageMs = Math.max(0, storeTimeMs - decoded.createdMs);
    this.completed = { answer: decoded.answer, ageMs };
    this.#end("completed");
  }

  #sendAgain(atOnce: boolean): void {
    const now = performance.now();
    // Nothing is written after the budget, and no answer can put off its end.
    if (now >= this.#endsAt) this.#end("unavailable");
    else if (atOnce) this.send(now);
    else this.#setTimer(now + backoffMs(this.#retries++));
  }

  /** Rule 2: a request is in flight until it is certain that it cannot take effect later. */
  #resolve(request: Request, reply: AcquireReply): void {
    if (reply.kind === "unknown") return;
    if (reply.kind === "unsent") this.copies--;
    this.inFlight.resolve(request);
  }

  #end(outcome: Acquisition["outcome"]): void {
    this.#ended = true;
    this.#timers.clear(this);
    this.outcome = outcome;
    this.mayHold ||= !this.inFlight.isEmpty;
    if (outcome === "unavailable") {
      this.cause = toLockError(this.#lastFailure, this.command.times.acquireTimeoutMs);
    }
    this.#onEnd(this);
  }
}
