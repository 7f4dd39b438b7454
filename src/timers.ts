import { AsyncResource } from "node:async_hooks";
import { clearTimeout, performance, setImmediate, setTimeout, sleep } from "./time.ts";

/**
 * The asynchronous context in which the package was loaded. A timer or a socket that serves many
 * requests would otherwise show the first one's `AsyncLocalStorage` store to all the others.
 */
const neutralContext: AsyncResource = new AsyncResource("submit-lock");
// It can still run functions. `jest --detectOpenHandles` would take it for a handle left open.
neutralContext.emitDestroy();

export function inNeutralContext<Args extends unknown[], Result>(
  fn: (...args: Args) => Result,
  ...args: Args
): Result {
  return neutralContext.runInAsyncScope(fn, undefined, ...args);
}

/** The base of attempts, leases, releases, completes and response ends: each is due at a time. */
export abstract class Timer {
  // The neighbours in a slot's ring. Private, so that a printed timer does not show all others.
  #before: Timer | undefined;
  #after: Timer | undefined;

  /** Called at its time or about one step later; still later if the event loop was blocked. */
  abstract onDue(): void;

  static next(timer: Timer): Timer {
    return timer.#after ?? timer;
  }

  static link(timer: Timer, slot: Timer): void {
    const last = slot.#before ?? slot;
    last.#after = timer;
    timer.#before = last;
    timer.#after = slot;
    slot.#before = timer;
  }

  /** Clears the timer's own links, too: they would keep its neighbours in memory. */
  static unlink(timer: Timer): boolean {
    const before = timer.#before;
    const after = timer.#after;
    if (before === undefined || after === undefined) return false;
    before.#after = after;
    after.#before = before;
    timer.#before = undefined;
    timer.#after = undefined;
    return true;
  }
}

class Slot extends Timer {
  override onDue(): void {}
}

/**
 * A hashed timing wheel (Varghese and Lauck, 1987): one `setTimeout` for many timers, because one
 * for each attempt cost about a quarter of the throughput under load. A timer is never early, and
 * up to about one step late. The timers of a slot are a ring and not a `Set`: V8 reallocates a
 * Set's table, and the old table keeps the timers in memory until a major garbage collection.
 */
export class TimerWheel<Kind extends Timer = Timer> {
  readonly #stepMs: number;
  #keepsAlive: boolean;
  #count = 0;
  readonly #slots = new Map<number, Slot>();
  #timeout: NodeJS.Timeout | undefined;
  /** The number of the slot that `#timeout` waits for; ∞ for none. */
  #armedFor: number = Number.POSITIVE_INFINITY;
  /** The number of the last slot that has fired: `set` uses later slots only. */
  #firedUpTo = 0;

  /** @param keepsAlive whether a timer that is set keeps the process alive. */
  constructor(stepMs: number, keepsAlive: boolean) {
    this.#stepMs = stepMs;
    this.#keepsAlive = keepsAlive;
  }

  /** Sets or moves the timer. @param at its time by the monotonic clock, in milliseconds. */
  set(timer: Kind, at: number): void {
    if (!Timer.unlink(timer) && this.#count++ === 0 && this.#keepsAlive) this.#timeout?.ref();
    const number = Math.max(Math.ceil(at / this.#stepMs), this.#firedUpTo + 1);
    let slot = this.#slots.get(number);
    if (slot === undefined) {
      slot = new Slot();
      this.#slots.set(number, slot);
      if (number < this.#armedFor) this.#arm(number);
    }
    Timer.link(timer, slot);
  }

  clear(timer: Kind): void {
    // Do not clear `#timeout`, because usually another timer is set a moment later.
    if (Timer.unlink(timer) && --this.#count === 0 && this.#keepsAlive) this.#timeout?.unref();
  }

  armed(): Kind[] {
    const all: Kind[] = [];
    for (const slot of this.#slots.values()) {
      for (let each = Timer.next(slot); each !== slot; each = Timer.next(each))
        all.push(each as Kind);
    }
    return all;
  }

  /** Timers still fire, but keep no process alive. */
  unref(): void {
    this.#keepsAlive = false;
    this.#timeout?.unref();
  }

  #arm(number: number): void {
    clearTimeout(this.#timeout);
    this.#armedFor = number;
    // `setTimeout` may fire just before its time by the monotonic clock, hence the ceiling.
    const waitMs = Math.max(1, Math.ceil(number * this.#stepMs - performance.now()));
    this.#timeout = inNeutralContext(setTimeout, this.#onTimeout, waitMs);
    if (!this.#keepsAlive || this.#count === 0) this.#timeout.unref();
  }

  readonly #onTimeout = (): void => {
    // Rule 10: after a blocked event loop, an answer may wait. It gets one turn before timers.
    setImmediate(this.#fire, Math.floor(performance.now() / this.#stepMs));
  };

  readonly #fire = (upTo: number): void => {
    this.#armedFor = Number.POSITIVE_INFINITY;
    this.#firedUpTo = upTo;
    try {
      // A timer that an `onDue` sets is put into a slot after `upTo`, so this loop ends.
      for (const [number, slot] of this.#slots) {
        if (number > upTo) continue;
        for (let each = Timer.next(slot); each !== slot; each = Timer.next(slot)) {
          this.clear(each as Kind);
          each.onDue();
        }
      }
    } finally {
      // If an `onDue` has thrown, the rest of its slot fires at the next timeout. Remove empty
      // slots, so that no timeout waits for them: most slots are empty long before their time.
      let next = Number.POSITIVE_INFINITY;
      for (const [number, slot] of this.#slots) {
        if (Timer.next(slot) === slot) this.#slots.delete(number);
        else next = Math.min(next, number);
      }
      if (next < this.#armedFor) this.#arm(next);
    }
  };
}

/** Settles as the promise does, or resolves with `undefined` after `ms` milliseconds. */
export async function within<Value>(
  ms: number,
  promise: Promise<Value>,
): Promise<Value | undefined> {
  let timer: NodeJS.Timeout | undefined;
  const timeUp = new Promise<undefined>((resolve) => {
    timer = setTimeout(() => resolve(undefined), ms);
  });
  try {
    return await Promise.race([promise, timeUp]);
  } finally {
    clearTimeout(timer);
  }
}

/** Pauses for a random time, until `endsAt` at most, so that waiters do not retry together. */
export async function pauseBeforeRetry(round: number, endsAt: number): Promise<void> {
  const jittered = Math.min(25 * 2 ** round, 250) * (0.5 + Math.random());
  await sleep(Math.max(0, Math.min(jittered, endsAt - performance.now())));
}
