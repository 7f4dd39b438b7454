import { inNeutralContext } from "./neutral-context.ts";

/** Something that is due at a time of the monotonic clock. */
export abstract class Timer {
  // The neighbours in the ring of one slot; `undefined` while the timer is not set.
  // Private, so that a request that is serialised does not show all the others.
  #before: Timer | undefined;
  #after: Timer | undefined;

  /** Called once the time has come: up to a step late, or later if the event loop was blocked. */
  abstract onDue(): void;

  static next(timer: Timer): Timer {
    return timer.#after ?? timer;
  }

  /** Appends the timer to the slot's ring. */
  static link(timer: Timer, slot: Timer): void {
    const last = slot.#before ?? slot;
    last.#after = timer;
    timer.#before = last;
    timer.#after = slot;
    slot.#before = timer;
  }

  /**
   * Clears the timer's own links: it may live on, and would keep its neighbours in memory.
   *
   * @returns whether the timer was set.
   */
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

/** The head of a ring. */
class Slot extends Timer {
  override onDue(): void {}
}

/**
 * A hashed timing wheel (Varghese and Lauck, 1987): one timer of the platform for many, because
 * nearly all of them are cleared before they are due. Setting and clearing change a few references;
 * a `setTimeout` an attempt took about a quarter of the throughput under load. A timer is never
 * early, and up to a step late.
 *
 * The timers of a slot are a ring and not a `Set`: one that is filled and emptied all the time makes
 * V8 reallocate its table, and the old table keeps the requests alive until a major collection.
 */
export class TimerWheel<Kind extends Timer = Timer> {
  readonly #stepMs: number;
  #keepsAlive: boolean;
  #count = 0;
  /** By the number of the step at whose beginning they are due. */
  readonly #slots = new Map<number, Slot>();
  #timeout: NodeJS.Timeout | undefined;
  /** The slot that the timeout waits for. */
  #armedFor: number = Number.POSITIVE_INFINITY;
  /** All slots up to this one have fired. */
  #firedUpTo = 0;

  /**
   * @param stepMs how late a timer may be, in milliseconds.
   * @param keepsAlive whether the process goes on for as long as a timer is set.
   */
  constructor(stepMs: number, keepsAlive: boolean) {
    this.#stepMs = stepMs;
    this.#keepsAlive = keepsAlive;
  }

  /** @param at by the monotonic clock, in milliseconds. Replaces an earlier time of the same timer. */
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
    // The timeout stays: the next timer is usually a moment away.
    if (Timer.unlink(timer) && --this.#count === 0 && this.#keepsAlive) this.#timeout?.unref();
  }

  /** All timers that are set at the moment. */
  armed(): Kind[] {
    const all: Kind[] = [];
    for (const slot of this.#slots.values()) {
      for (let each = Timer.next(slot); each !== slot; each = Timer.next(each))
        all.push(each as Kind);
    }
    return all;
  }

  /** Timers that are set still fire, but no longer keep the process alive. */
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
    // Rule 10: after a blocked event loop an answer may lie behind this timeout; it gets one more turn.
    setImmediate(this.#fire, Math.floor(performance.now() / this.#stepMs));
  };

  readonly #fire = (upTo: number): void => {
    this.#armedFor = Number.POSITIVE_INFINITY;
    this.#firedUpTo = upTo;
    try {
      // Timers that are set by a due timer are in later slots.
      for (const [number, slot] of this.#slots) {
        if (number > upTo) continue;
        for (let each = Timer.next(slot); each !== slot; each = Timer.next(slot)) {
          this.clear(each as Kind);
          each.onDue();
        }
      }
    } finally {
      // Also when a listener has thrown: the rest of its slot fires next. Most slots are empty long
      // before their time: no timeout waits for those.
      let next = Number.POSITIVE_INFINITY;
      for (const [number, slot] of this.#slots) {
        if (Timer.next(slot) === slot) this.#slots.delete(number);
        else next = Math.min(next, number);
      }
      if (next < this.#armedFor) this.#arm(next);
    }
  };
}
