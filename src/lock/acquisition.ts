import { type Alarms, Sleeper } from "./alarms.ts";
import type { LockMisconfiguredError, LockUnavailableError } from "./errors.ts";
import type { AcquireReply, Answered, Copy, LockCommand, LockStore, NoAnswer } from "./store.ts";
import { errorFor } from "./trouble.ts";

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
  readonly openCopies: readonly Copy<AcquireReply>[];
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
  alarms: Alarms,
  ended: (acquisition: Acquisition) => void,
): void {
  const attempt = new Attempt(store, command, alarms, ended);
  attempt.send(attempt.startedAt);
}

/** The pause before the n-th retry. Doubling from 5 to 100 ms. */
function backoffMs(retries: number): number {
  return Math.min(5 * 2 ** retries, 100);
}

class AcquireCopy implements Copy<AcquireReply> {
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

class Attempt extends Sleeper implements Acquisition {
  readonly command: LockCommand;
  readonly startedAt: number = performance.now();
  outcome: Acquisition["outcome"] = "unavailable";
  confirmed = false;
  expiresInMs = 0;
  cause: Acquisition["cause"];
  copies = 0;
  openCopies: AcquireCopy[] = [];
  mayHold = false;
  readonly #store: LockStore;
  readonly #alarms: Alarms;
  readonly #tell: (acquisition: Acquisition) => void;
  #newest: AcquireCopy | undefined;
  #retries = 0;
  #wasRefused = false;
  #lostAnAnswer = false;
  #trouble: NoAnswer | undefined;
  #ended = false;

  constructor(
    store: LockStore,
    command: LockCommand,
    alarms: Alarms,
    ended: (acquisition: Acquisition) => void,
  ) {
    super();
    this.#store = store;
    this.command = command;
    this.#alarms = alarms;
    this.#tell = ended;
  }

  send(now: number): void {
    const copy = new AcquireCopy(this);
    this.#newest = copy;
    this.copies++;
    // There is mostly one, and a list that is pushed to makes room for many.
    if (this.openCopies.length === 0) this.openCopies = [copy];
    else this.openCopies.push(copy);
    this.#wakeAt(now + this.command.times.commandTimeoutMs);
    this.#store.acquire(copy);
  }

  /** Sets the one alarm for the next send or the end of the budget, whichever comes first. */
  #wakeAt(sendAt: number): void {
    this.#alarms.set(this, Math.min(sendAt, this.#endsAt));
  }

  get #endsAt(): number {
    return this.startedAt + this.command.times.acquireTimeoutMs;
  }

  override awake(): void {
    const now = performance.now();
    if (now >= this.#endsAt) this.#end("unavailable");
    // The confirm: the same command and owner id, on another connection where the first is silent.
    else this.send(now);
  }

  answered(copy: AcquireCopy, reply: AcquireReply): void {
    this.#close(copy, reply);
    if (this.#ended) return;
    switch (reply.kind) {
      case "taken":
      case "mine":
        this.#granted(reply.kind === "mine" || !reply.clean);
        break;
      case "contended":
        this.expiresInMs = reply.expiresInMs;
        this.#end("contended");
        break;
      case "unusable":
        this.expiresInMs = Number.POSITIVE_INFINITY;
        this.#end("contended");
        break;
      default:
        // An older copy's trouble is no news: the newest one has a timer of its own.
        if (copy === this.#newest) this.#goOn(reply);
    }
  }

  /** No verdict yet. */
  #goOn(reply: Answered<"refused"> | NoAnswer): void {
    if (reply.kind !== "refused") this.#trouble = reply;
    switch (reply.kind) {
      case "refused": {
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
        if (this.openCopies.length === 0) this.#end("unavailable");
        else this.#sendAgain(false);
        break;
      case "unsent":
        this.#sendAgain(false);
        break;
    }
  }

  #granted(doubtful: boolean): void {
    if (performance.now() < this.#endsAt) {
      this.confirmed = doubtful || this.openCopies.length > 0;
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
  #close(copy: AcquireCopy, reply: AcquireReply): void {
    switch (reply.kind) {
      case "unsent":
        this.copies--;
        break;
      case "unknown":
        return;
      default:
        if (!reply.clean) return;
    }
    const at = this.openCopies.indexOf(copy);
    if (at >= 0) this.openCopies.splice(at, 1);
  }

  #end(outcome: Acquisition["outcome"]): void {
    this.#ended = true;
    this.#alarms.clear(this);
    this.outcome = outcome;
    this.mayHold ||= this.openCopies.length > 0;
    if (outcome === "unavailable") {
      this.cause = errorFor(this.#trouble, this.command.times.acquireTimeoutMs);
    }
    this.#tell(this);
  }
}
