/** Something that is to be woken at a time. */
export abstract class Timer {
  // The neighbours in the ring of those of about the same time; `undefined` while no alarm is set.
  // Private, so that a lease that is serialised does not show all the others.
  #before: Timer | undefined;
  #after: Timer | undefined;

  /** The time has come, or has passed by a step, or by as long as the event loop was blocked. */
  abstract onDue(): void;

  static isSet(timer: Timer): boolean {
    return timer.#after !== undefined;
  }

  static next(timer: Timer): Timer {
    return timer.#after ?? timer;
  }

  /** The last of the ring that begins at the slot. */
  static link(timer: Timer, slot: Timer): void {
    const last = slot.#before ?? slot;
    last.#after = timer;
    timer.#before = last;
    timer.#after = slot;
    slot.#before = timer;
  }

  /** Leaves nothing behind in the timer: it may be old, and would keep its neighbours. */
  static unlink(timer: Timer): void {
    const before = timer.#before;
    const after = timer.#after;
    if (before === undefined || after === undefined) return;
    before.#after = after;
    after.#before = before;
    timer.#before = undefined;
    timer.#after = undefined;
  }
}

/** Where a ring begins and ends. */
class Slot extends Timer {
  override onDue(): void {}
}

/**
 * One timer for many sleepers, because nearly all of them are called off: setting and calling off is
 * a matter of a few references, where a timer of the platform for each is the dearest part of a lock
 * under load. A timer is woken up to a step late and never early.
 *
 * No `Set` of them: one that is filled and emptied all the time throws its table away again and
 * again, and an old table keeps what was in it, and so everything that a request has made, until
 * the next full collection.
 */
export class TimerWheel<Kind extends Timer = Timer> {
  readonly #stepMs: number;
  #keepsAlive: boolean;
  #count = 0;
  /** By the number of the step at whose beginning they are woken. */
  readonly #slots = new Map<number, Slot>();
  #timer: NodeJS.Timeout | undefined;
  /** The slot that the timer is armed for. */
  #armedFor: number = Number.POSITIVE_INFINITY;
  /** Up to this slot everything has been woken. */
  #rung = 0;

  /**
   * @param stepMs how late a timer may be woken.
   * @param keepsAlive whether the process goes on for as long as an alarm is set.
   */
  constructor(stepMs: number, keepsAlive: boolean) {
    this.#stepMs = stepMs;
    this.#keepsAlive = keepsAlive;
  }

  /** @param at by the monotonic clock. An earlier alarm of the same timer is called off. */
  set(timer: Kind, at: number): void {
    if (Timer.isSet(timer)) Timer.unlink(timer);
    else this.#counted(1);
    const number = Math.max(Math.ceil(at / this.#stepMs), this.#rung + 1);
    let slot = this.#slots.get(number);
    if (slot === undefined) {
      slot = new Slot();
      this.#slots.set(number, slot);
      if (number < this.#armedFor) this.#arm(number);
    }
    Timer.link(timer, slot);
  }

  clear(timer: Kind): void {
    if (!Timer.isSet(timer)) return;
    Timer.unlink(timer);
    this.#counted(-1);
  }

  /** All whose alarm is set at the moment. */
  armed(): Kind[] {
    const all: Kind[] = [];
    for (const slot of this.#slots.values()) {
      for (let each = Timer.next(slot); each !== slot; each = Timer.next(each)) {
        all.push(each as Kind);
      }
    }
    return all;
  }

  /** What is set still rings, but keeps no process alive. */
  unref(): void {
    this.#keepsAlive = false;
    this.#timer?.unref();
  }

  #counted(change: 1 | -1): void {
    this.#count += change;
    if (!this.#keepsAlive) return;
    // The timer itself stays: the next alarm is mostly a moment away.
    if (this.#count === 0) this.#timer?.unref();
    else if (change === 1 && this.#count === 1) this.#timer?.ref();
  }

  #arm(number: number): void {
    clearTimeout(this.#timer);
    this.#armedFor = number;
    // A timer may fire just before its time by the monotonic clock, hence the ceiling.
    const waitMs = Math.max(1, Math.ceil(number * this.#stepMs - performance.now()));
    this.#timer = setTimeout(() => {
      const upTo = Math.floor(performance.now() / this.#stepMs);
      // After a blocked event loop an answer may lie behind this timer: it gets one more turn.
      setImmediate(() => this.#ring(upTo));
    }, waitMs);
    if (!this.#keepsAlive || this.#count === 0) this.#timer.unref();
  }

  #ring(upTo: number): void {
    this.#armedFor = Number.POSITIVE_INFINITY;
    this.#rung = upTo;
    try {
      // What is set meanwhile stands in later slots.
      for (const [number, slot] of this.#slots) {
        if (number > upTo) continue;
        for (let each = Timer.next(slot); each !== slot; each = Timer.next(slot)) {
          this.clear(each as Kind);
          each.onDue();
        }
      }
    } finally {
      // Also when a store of somebody else has thrown: then the rest of its slot is next.
      this.#armNext();
    }
  }

  /** Most slots are empty long before their time: nothing rings for those. */
  #armNext(): void {
    let next = Number.POSITIVE_INFINITY;
    for (const [number, slot] of this.#slots) {
      if (Timer.next(slot) === slot) this.#slots.delete(number);
      else next = Math.min(next, number);
    }
    if (next < this.#armedFor) this.#arm(next);
  }
}
