import type { LockMisconfiguredError, LockUnavailableError } from "../errors.ts";
import { Timer, type TimerWheel } from "../timer-wheel.ts";
import type {
  AcquireReply,
  Answered,
  LockCommand,
  LockRequest,
  LockStore,
  NoAnswer,
} from "./store.ts";
import { toLockError } from "./trouble.ts";

/** How an attempt ended, with what the lock needs to clean up after it. */
export interface Acquisition {
  readonly outcome: "acquired" | "contended" | "unavailable";
  /** Acquired: an answer had been lost, late or doubtful, and the owner id was confirmed. */
  readonly confirmed: boolean;
  /** Contended: how long the other's key has to live. */
  readonly expiresInMs: number;
  /** Unavailable: why. */
  readonly cause: LockUnavailableError | LockMisconfiguredError | undefined;
  /** Monotonic time from before the first send: the life of the lease counts from here. */
  readonly startedAt: number;
  /** How many copies were written. */
  readonly copies: number;
  /** Copies that may still take effect. Shrinks when their clean answers come in later. */
  readonly inFlight: readonly LockRequest<AcquireReply>[];
  /** Whether the owner id has to be retired: it may be at the key now, or come there later. */
  readonly mayHold: boolean;
}

/**
 * One attempt: one owner id, as many copies of one idempotent acquire as it takes to get an answer,
 * one verdict.
 *
 * @param ended called once, within `acquireTimeoutMs`.
 */
export function acquire(
  store: LockStore,
  command: LockCommand,
  timers: TimerWheel,
  ended: (acquisition: Acquisition) => void,
): void {
  const attempt = new Attempt(store, command, timers, ended);
  attempt.send(attempt.startedAt);
}

/** The pause before the n-th retry. Doubling from 5 to 100 ms. */
function backoffMs(retries: number): number {
  return Math.min(5 * 2 ** retries, 100);
}

class AcquireRequest implements LockRequest<AcquireReply> {
  readonly #attempt: Attempt;
  deadlineMs: number | undefined;

  constructor(attempt: Attempt) {
    this.#attempt = attempt;
  }

  get command(): LockCommand {
    return this.#attempt.command;
  }

  answer(reply: AcquireReply): void {
    this.#attempt.answered(this, reply);
  }
}

class Attempt extends Timer implements Acquisition {
  readonly command: LockCommand;
  readonly startedAt: number = performance.now();
  outcome: Acquisition["outcome"] = "unavailable";
  confirmed = false;
  expiresInMs = 0;
  cause: Acquisition["cause"];
  copies = 0;
  inFlight: AcquireRequest[] = [];
  mayHold = false;
  readonly #store: LockStore;
  readonly #timers: TimerWheel;
  readonly #tell: (acquisition: Acquisition) => void;
  #newest: AcquireRequest | undefined;
  #retries = 0;
  #wasRefused = false;
  #lostAnAnswer = false;
  #lastFailure: NoAnswer | undefined;
  #ended = false;

  constructor(
    store: LockStore,
    command: LockCommand,
    timers: TimerWheel,
    ended: (acquisition: Acquisition) => void,
  ) {
    super();
    this.#store = store;
    this.command = command;
    this.#timers = timers;
    this.#tell = ended;
  }

  send(now: number): void {
    const copy = new AcquireRequest(this);
    this.#newest = copy;
    this.copies++;
    // There is mostly one, and a list that is pushed to makes room for many.
    if (this.inFlight.length === 0) this.inFlight = [copy];
    else this.inFlight.push(copy);
    this.#wakeAt(now + this.command.times.commandTimeoutMs);
    this.#store.acquire(copy);
  }

  /** Sets the one alarm for the next send or the end of the budget, whichever comes first. */
  #wakeAt(sendAt: number): void {
    this.#timers.set(this, Math.min(sendAt, this.#endsAt));
  }

  get #endsAt(): number {
    return this.startedAt + this.command.times.acquireTimeoutMs;
  }

  override onDue(): void {
    const now = performance.now();
    if (now >= this.#endsAt) this.#end("unavailable");
    // The confirm: the same command and owner id, on another connection where the first is silent.
    else this.send(now);
  }

  answered(copy: AcquireRequest, reply: AcquireReply): void {
    this.#close(copy, reply);
    if (this.#ended) return;
    switch (reply.kind) {
      case "taken":
      case "mine":
        this.#granted(reply.kind === "mine");
        break;
      case "contended":
        this.expiresInMs = reply.expiresInMs;
        this.#end("contended");
        break;
      default:
        // An older copy's trouble is no news: the newest one has a timer of its own.
        if (copy === this.#newest) this.#goOn(reply);
    }
  }

  /** No verdict yet. */
  #goOn(reply: Answered<"outOfWindow"> | NoAnswer): void {
    if (reply.kind !== "outOfWindow") this.#lastFailure = reply;
    switch (reply.kind) {
      case "outOfWindow": {
        // The store has learned the clock from this answer, so the next copy is stamped rightly.
        const isFirst = !this.#wasRefused;
        this.#wasRefused = true;
        this.#sendAgain(isFirst);
        break;
      }
      case "unknown": {
        // The first confirm goes out at once.
        const isFirst = !this.#lostAnAnswer;
        this.#lostAnAnswer = true;
        this.#sendAgain(isFirst);
        break;
      }
      case "rejected":
        // Certain: no copy took effect and none will. Asking again would only delay the answer.
        if (this.inFlight.length === 0) this.#end("unavailable");
        else this.#sendAgain(false);
        break;
      case "unsent":
        this.#sendAgain(false);
        break;
    }
  }

  #granted(doubtful: boolean): void {
    if (performance.now() < this.#endsAt) {
      this.confirmed = doubtful || this.inFlight.length > 0;
      this.#end("acquired");
      return;
    }
    // Too late to be told "yes": the caller was promised an answer within the budget.
    this.mayHold = true;
    this.#end("unavailable");
  }

  #sendAgain(atOnce: boolean): void {
    const now = performance.now();
    // Nothing is written after the budget, and no answer can put off its end.
    if (now >= this.#endsAt) this.#end("unavailable");
    else if (atOnce) this.send(now);
    else this.#wakeAt(now + backoffMs(this.#retries++));
  }

  /** A copy stays open until it is certain that it cannot take effect later. */
  #close(copy: AcquireRequest, reply: AcquireReply): void {
    switch (reply.kind) {
      case "unsent":
        this.copies--;
        break;
      case "unknown":
        return;
    }
    const at = this.inFlight.indexOf(copy);
    if (at >= 0) this.inFlight.splice(at, 1);
  }

  #end(outcome: Acquisition["outcome"]): void {
    this.#ended = true;
    this.#timers.clear(this);
    this.outcome = outcome;
    this.mayHold ||= this.inFlight.length > 0;
    if (outcome === "unavailable") {
      this.cause = toLockError(this.#lastFailure, this.command.times.acquireTimeoutMs);
    }
    this.#tell(this);
  }
}
