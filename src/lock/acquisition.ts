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
 * one verdict. Never rejects, and ends within `acquireTimeoutMs`.
 */
export function acquire(store: LockStore, command: LockCommand): Promise<Acquisition> {
  return new Promise((resolve) => new Attempt(store, command, resolve).send());
}

/** The pause before the n-th retry. Doubling from 5 to 100 ms. */
function backoffMs(retries: number): number {
  return Math.min(5 * 2 ** retries, 100);
}

class Attempt {
  readonly #store: LockStore;
  readonly #command: LockCommand;
  readonly #resolve: (acquisition: Acquisition) => void;
  readonly #startedAt: number = performance.now();
  readonly #open: Copy<AcquireReply>[] = [];
  #newest: Copy<AcquireReply> | undefined;
  #copies = 0;
  #retries = 0;
  #wasRefused = false;
  #lostAnAnswer = false;
  #trouble: NoAnswer | undefined;
  #sendAt = 0;
  #timer: NodeJS.Timeout | undefined;
  #ended = false;

  constructor(store: LockStore, command: LockCommand, resolve: (acquisition: Acquisition) => void) {
    this.#store = store;
    this.#command = command;
    this.#resolve = resolve;
  }

  send(): void {
    const copy = this.#store.acquire(this.#command);
    this.#newest = copy;
    this.#copies++;
    this.#open.push(copy);
    this.#wakeAt(performance.now() + this.#command.times.commandTimeoutMs);
    void copy.reply.then((reply) => this.#answered(copy, reply));
  }

  /** Arms the one timer for the next send or the end of the budget, whichever comes first. */
  #wakeAt(sendAt: number): void {
    this.#sendAt = sendAt;
    clearTimeout(this.#timer);
    const wait = Math.min(sendAt, this.#endsAt) - performance.now();
    // A timer may fire just before its time by the monotonic clock, hence the ceiling.
    this.#timer = setTimeout(() => {
      // After a blocked event loop the answer may lie behind this timer: it gets one more turn.
      setImmediate(() => this.#awake());
    }, Math.ceil(wait));
  }

  get #endsAt(): number {
    return this.#startedAt + this.#command.times.acquireTimeoutMs;
  }

  #awake(): void {
    if (this.#ended) return;
    const now = performance.now();
    if (now >= this.#endsAt) this.#end("unavailable");
    else if (now < this.#sendAt) this.#wakeAt(this.#sendAt);
    // The confirm: the same command and owner id, on another connection where the first is silent.
    else this.send();
  }

  #answered(copy: Copy<AcquireReply>, reply: AcquireReply): void {
    this.#close(copy, reply);
    if (this.#ended) return;
    switch (reply.kind) {
      case "taken":
      case "mine":
        this.#granted(reply.kind === "mine" || !reply.clean);
        break;
      case "contended":
        this.#end("contended", { expiresInMs: reply.expiresInMs });
        break;
      case "unusable":
        this.#end("contended", { expiresInMs: Number.POSITIVE_INFINITY });
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
      case "refused":
        // The store has learned the clock from this answer, so the next copy is stamped rightly.
        this.#sendAgain(!this.#wasRefused);
        this.#wasRefused = true;
        break;
      case "rejected":
        // Certain: no copy took effect and none will. Asking again would only delay the answer.
        if (this.#open.length === 0) this.#end("unavailable");
        else this.#sendAgain(false);
        break;
      case "unknown":
        // The first confirm goes out at once.
        this.#sendAgain(!this.#lostAnAnswer);
        this.#lostAnAnswer = true;
        break;
      case "unsent":
        this.#sendAgain(false);
        break;
    }
  }

  #granted(doubtful: boolean): void {
    // Too late to be told "yes": the caller was promised an answer within the budget.
    if (performance.now() >= this.#endsAt) this.#end("unavailable", { mayHold: true });
    else this.#end("acquired", { confirmed: doubtful || this.#open.length > 0 });
  }

  #sendAgain(atOnce: boolean): void {
    // Nothing is written after the budget, and no answer can put off its end.
    if (performance.now() >= this.#endsAt) this.#end("unavailable");
    else if (atOnce) this.send();
    else this.#wakeAt(performance.now() + backoffMs(this.#retries++));
  }

  /** A copy stays open until it is certain that it cannot take effect later. */
  #close(copy: Copy<AcquireReply>, reply: AcquireReply): void {
    switch (reply.kind) {
      case "unsent":
        this.#copies--;
        break;
      case "unknown":
        return;
      default:
        if (!reply.clean) return;
    }
    const at = this.#open.indexOf(copy);
    if (at >= 0) this.#open.splice(at, 1);
  }

  #end(
    outcome: Acquisition["outcome"],
    found: { confirmed?: boolean; expiresInMs?: number; mayHold?: boolean } = {},
  ): void {
    this.#ended = true;
    clearTimeout(this.#timer);
    const { confirmed = false, expiresInMs = 0, mayHold = false } = found;
    this.#resolve({
      outcome,
      confirmed,
      expiresInMs,
      cause:
        outcome === "unavailable"
          ? errorFor(this.#trouble, this.#command.times.acquireTimeoutMs)
          : undefined,
      startedAt: this.#startedAt,
      copies: this.#copies,
      openCopies: this.#open,
      mayHold: mayHold || this.#open.length > 0,
    });
  }
}
